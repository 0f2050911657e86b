"""Reads one run of a container into its spool, each line once, over lost connections, until it ends or nobody looks any more.

Unlike `ContainerLog`, which yields the lines of all runs one by one, it takes whole chunks of one run: a log of hundreds of
megabytes is there within seconds. Only after a lost connection are lines compared with those that were read before.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from typing import Any

from trainwright.api.errors import ApiError, BadRequest, Forbidden, NotFound
from trainwright.api.kinds import POD
from trainwright.api.objects import Obj, uid_of
from trainwright.cluster.protocol import Cluster
from trainwright.jobs.logs.container_log import MAX_LOST_CONNECTIONS, NOT_KEPT
from trainwright.jobs.logs.log_cursor import LogCursor, split_stamp
from trainwright.ui.logs.container_run import ContainerState, container_state
from trainwright.ui.logs.line_splitter import Lines, LineSplitter
from trainwright.ui.logs.spool import LogSpool, LogState

POLL_SECONDS = 0.5
IDLE_SECONDS = 20.0
"""After which a silent connection is opened again, if somebody still looks."""
_RECENT_NANOSECONDS = 3_000_000_000
"""Before the last line: timestamps that a new connection may repeat."""
_MAX_RECENT = 500_000


class SpoolReader:
    """Fills one spool. `run` is for a separate thread."""

    def __init__(self, cluster: Cluster, spool: LogSpool):
        self._cluster, self._spool, self._key = cluster, spool, spool.key
        self._lost = 0
        self._has_read = False

    def run(self) -> None:
        """Read until the log has ended, cannot be read, or the spool is closed."""
        while not self._spool.is_closed and not self._spool.state.is_final:
            try:
                self._read_once()
                self._lost = 0
            except NotFound as error:
                self._end("gone", f"the log is no longer available: {error.message}")
            except ApiError as error:
                self._note_failure(error)
            if not self._spool.state.is_final:
                self._spool.wait(self._spool.version, POLL_SECONDS)

    def _note_failure(self, error: ApiError) -> None:
        if (
            isinstance(error, Forbidden) and not self._lost
        ):  # else the API server was restarted, and refuses everybody for a moment
            self._end("forbidden", f"the log may not be read: {error.message}")
            return
        self._lost += 1
        if self._lost > MAX_LOST_CONNECTIONS:
            self._end("lost", f"the connection to the log was lost: {error.message}")
        else:
            self._say("reading", f"the connection was lost, and is being restored: {error.message}")

    def _read_once(self) -> None:
        """Read on one connection. Raises ApiError."""
        pod = self._pod()
        state = container_state(pod, self._key.container)
        missed = state.restarts - self._key.restart
        if missed > 1:
            self._end("gone" if not self._has_read else "ended", "the node has not kept this log: the container restarted again")
        elif missed == 1:
            self._read_previous(state)
        elif missed < 0 or (state.name == "waiting" and not state.is_over):
            self._say("waiting", f"the container has not started{f': {state.reason}' if state.reason else ''}")
        else:
            self._read_current(state)

    def _read_current(self, state: ContainerState) -> None:
        self._say("reading" if state.is_over else "live")
        try:
            self._connect(follow=not state.is_over)
        except BadRequest as error:
            if state.is_over:
                self._end("gone", f"the log is not available: {error.message}")
            else:
                self._say("waiting", error.message)
            return
        if state.is_over:
            self._end("ended")

    def _read_previous(self, state: ContainerState) -> None:
        """Read the run before the last restart."""
        try:
            self._connect(follow=False, previous=True)
        except BadRequest as error:
            self._end("ended" if self._has_read else "gone", f"the node has not kept the end of this log: {error.message}")
            return
        if container_state(self._pod(), self._key.container).restarts != state.restarts:
            self._end("ended", "the container restarted while its log was read: some lines may be of a later run")
        else:
            self._end("ended", "the container was restarted after this run")

    def _pod(self) -> Obj:
        pod = self._cluster.get(POD, self._key.pod, self._key.namespace)
        if uid_of(pod) != self._key.uid:
            raise NotFound(f"the pod {self._key.pod} was deleted, and another one has its name")
        return pod

    def _connect(self, *, follow: bool, previous: bool = False) -> None:
        """Read one connection to its end; a line that has not ended counts as one once the log is over. Raises ApiError."""
        options: dict[str, Any] = {"container": self._key.container, "timestamps": True, "follow": follow, "previous": previous}
        if follow:
            options["idle_seconds"] = IDLE_SECONDS
        new = _NewLines(self._cursor(), self._spool.total)
        options["since_time"] = new.since
        splitter = LineSplitter()
        with closing(_as_generator(self._cluster.logs(self._key.pod, self._key.namespace, **options))) as chunks:
            for chunk in chunks:
                lines = splitter.feed(chunk)
                rest = splitter.rest()
                self._has_read, self._lost = True, 0
                if not self._spool.append(new.of(lines), b"".join(rest.texts)):
                    return
        if not follow:
            self._spool.append(new.of(splitter.rest()))

    def _cursor(self) -> LogCursor:
        """Return the position behind the last line that was read."""
        recent: list[int] = []
        for shown in self._spool.stamps_backward():
            stamp = split_stamp(shown + b" ")[0]
            if stamp is None:
                continue
            if len(recent) == _MAX_RECENT or (recent and stamp < recent[0] - _RECENT_NANOSECONDS):
                break
            recent.append(stamp)
        cursor = LogCursor()
        for stamp in reversed(recent):
            cursor.accept(stamp)
        return cursor

    def _say(self, name: str, message: str = "") -> None:
        self._spool.set_state(LogState(name, message))

    def _end(self, name: str, message: str = "") -> None:
        if self._spool.partial:  # nothing will complete it
            self._spool.append(Lines([b""], [self._spool.partial]))
        if not self._spool.state.is_final:
            self._say(name, message)


class _NewLines:
    """Selects the lines of a connection that were not read before. Before the first line was read, all are new."""

    def __init__(self, cursor: LogCursor, known: int):
        self._cursor = cursor if cursor.has_position else None
        self._skipped = 0 if cursor.has_position else known
        """Lines to leave out by their number: those that were read had no timestamps."""
        self._is_first = True
        self.since = cursor.since()
        cursor.start_connection()

    def of(self, lines: Lines) -> Lines:
        """Return the new ones among the next lines, with a note where some are missing."""
        if self._cursor is None:
            skipped, self._skipped = self._skipped, max(0, self._skipped - len(lines.texts))
            return Lines(lines.stamps[skipped:], lines.texts[skipped:]) if skipped else lines
        found = Lines([], [])
        for shown, text in zip(lines.stamps, lines.texts, strict=True):
            stamp = split_stamp(shown + b" ")[0]
            is_beyond = self._is_first and stamp is not None and self._cursor.is_beyond
            if self._cursor.accept(stamp):
                if is_beyond:
                    found.stamps.append(b"")
                    found.texts.append(NOT_KEPT.encode())
                self._is_first = False
                found.stamps.append(shown)
                found.texts.append(text)
        return found


def _as_generator(chunks: Iterator[bytes]) -> Generator[bytes, None, None]:
    """Return a generator, which closes the connection when it is closed."""
    yield from chunks
