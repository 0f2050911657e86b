"""Reads the log of one container, each line once, across lost connections, repeated lines and container restarts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from trainwright.api.errors import ApiError, BadRequest, Forbidden, NotFound
from trainwright.api.kinds import POD
from trainwright.api.objects import Obj, name_of, namespace_of, uid_of
from trainwright.cluster.protocol import Cluster
from trainwright.jobs.logs.kubelet_messages import is_kubelet_message
from trainwright.jobs.logs.line_assembler import LineAssembler
from trainwright.jobs.logs.log_cursor import LogCursor, split_stamp

POLL_SECONDS = 0.5
MAX_LOST_CONNECTIONS = 120
"""Consecutive connections that may fail, about one minute."""
MAX_LINE_BYTES = 64 * 1024
"""Of longer lines the begin and the end are kept: a progress bar may be a single line of many megabytes."""
NOT_KEPT = "... lines not shown: the node has not kept them"
"""In place of lines that were rotated away before they were read."""
MAX_EXACT_BYTES = 4 * 1024 * 1024
"""Of the lines of an exact log; a follower keeps some of them in memory."""


@dataclass
class ContainerLog:
    """The log of one container of a pod. `since` is an RFC 3339 time; `tail`, in lines, applies to the first connection only.

    `after` is the time of the last line that was shown before.
    """

    cluster: Cluster
    pod: Obj
    container: str
    since: str = ""
    tail: int | None = None
    closed: threading.Event = field(default_factory=threading.Event)
    after: str = ""
    idle_seconds: float | None = None
    """After which a silent connection is opened again, so that a log that is `closed` ends."""
    catch_up: int | None = None
    """Lines before the end that a later connection requests at most: for a time alone, a node reads the whole log."""
    is_exact: bool = False
    """Keep invalid UTF-8 as surrogates, and up to MAX_EXACT_BYTES of a line: for a file that gets the bytes of the log."""

    def __post_init__(self) -> None:
        self._cursor = LogCursor(self.since, tailed=self.tail is not None, after=self.after)
        self.restarts = _restarts(self.pod, self.container)
        """Restart count of the container when it was last read."""
        self._partial = b""
        self.has_ended: Callable[[Obj], bool] = _has_ended
        """Whether nothing will be added to the log, from the current pod."""
        self.problem = ""
        """Why the log could not be followed to its end; empty if it was."""
        self._said = ""

    @property
    def partial(self) -> str:
        """The text of the last line, if it has not ended yet."""
        stamp, _, text = split_stamp(self._partial)  # without one, not even that has arrived
        return "" if stamp is None or self._cursor.is_shown(stamp) else self._decoded(text)

    def read(self, *, previous: bool = False) -> Iterator[tuple[str, str]]:
        """Yield `(timestamp, line)` of the current log. Raises ApiError."""
        yield from self._read_connection(follow=False, previous=previous)
        yield from self._flush()

    def poll(self, pod: Obj) -> Iterator[tuple[str, str]]:
        """Yield `(timestamp, line)` of the lines since the last poll; `pod` is the pod's current state. Raises ApiError.

        Lines that the caller does not consume are returned by the next poll.
        """
        is_new_run = _restarts(pod, self.container) > self.restarts
        yield from self._previous_run(pod)
        yield from self._read_connection(follow=False, is_new_run=is_new_run)
        if self.has_ended(pod):
            yield from self._flush()

    def follow(self) -> Iterator[tuple[str, str]]:
        """Yield `(timestamp, line)` until the pod has ended, is deleted, or `closed` is set. Lost connections are reopened.

        Ends with a `problem` if the log may not be read, or its connection is lost for a minute; it can be followed again then.
        """
        lost, ended, self.problem = 0, False, ""
        while not self.closed.is_set():
            try:
                pod = self.cluster.get(POD, name_of(self.pod), namespace_of(self.pod))
                if uid_of(pod) != uid_of(self.pod):
                    break
                ended = self.has_ended(pod)
                is_new_run = _restarts(pod, self.container) > self.restarts
                yield from self._previous_run(pod)
                for line in self._read_connection(follow=not ended, is_new_run=is_new_run):
                    lost, self._said = 0, ""
                    yield line
                if ended:
                    break
            except NotFound:
                break
            except BadRequest:  # the container has not started
                if ended:
                    break
            except ApiError as error:
                if (
                    isinstance(error, Forbidden) and not lost
                ):  # else the API server was restarted, and refuses everybody for a moment
                    yield from self._fail(f"(this log cannot be read: {error.message})")
                    return
                lost += 1
                if lost > MAX_LOST_CONNECTIONS:
                    yield from self._fail(f"(the connection to this log was lost: {error.message})")
                    return
            self.closed.wait(POLL_SECONDS)
        yield from self._flush()

    def _fail(self, problem: str) -> Iterator[tuple[str, str]]:
        """Yield a problem as a line, unless it was said before and nothing was read since."""
        if problem != self._said:
            yield "", problem
        self.problem = self._said = problem

    def _previous_run(self, pod: Obj) -> Iterator[tuple[str, str]]:
        """Yield the remaining lines of the previous container run after a restart."""
        restarts = _restarts(pod, self.container)
        missed = restarts - self.restarts
        if missed <= 0:
            return
        if missed > 1:
            yield "", f"(the container restarted {missed} times in between; only the logs of its last two runs are available)"
        try:
            yield from self._read_connection(follow=False, previous=True)
            yield from self._flush()
        except BadRequest:  # the previous log is no longer kept
            self._partial = b""
        self.restarts = restarts

    def _read_connection(self, *, follow: bool, previous: bool = False, is_new_run: bool = False) -> Iterator[tuple[str, str]]:
        """Yield the new lines of one connection; an incomplete last line is left to the next connection."""
        is_first = not is_new_run
        options: dict[str, Any] = {"container": self.container, "follow": follow, "timestamps": True}
        options |= {"since_time": self._cursor.since(), "previous": previous}
        if self.tail is not None and not self._cursor.has_position and not previous:
            options["tail_lines"] = self.tail
        elif self.catch_up is not None and options["since_time"] and is_first:
            options["tail_lines"] = self.catch_up
        if follow and self.idle_seconds is not None:
            options["idle_seconds"] = self.idle_seconds
        self._cursor.start_connection()
        self._partial, assembler = b"", LineAssembler(MAX_EXACT_BYTES if self.is_exact else MAX_LINE_BYTES)
        for chunk in self.cluster.logs(name_of(self.pod), namespace_of(self.pod), **options):
            for line in assembler.feed(chunk):
                stamp, shown, text = split_stamp(line)
                if stamp is None and is_kubelet_message(line):
                    continue
                is_beyond = is_first and self._cursor.is_beyond
                if self._cursor.accept(stamp):
                    if is_beyond and stamp is not None:
                        yield "", NOT_KEPT
                    is_first = False
                    yield shown.decode(), self._decoded(text)
            self._partial = assembler.rest()
        self._partial = assembler.rest()

    def _decoded(self, text: bytes) -> str:
        return text.decode("utf-8", "surrogateescape" if self.is_exact else "replace")

    def _flush(self) -> Iterator[tuple[str, str]]:
        """Yield the incomplete last line of a log that has ended."""
        stamp, shown, text = split_stamp(self._partial)
        is_printed = bool(self._partial) and not (stamp is None and is_kubelet_message(self._partial))
        if is_printed and self._cursor.accept(stamp):
            yield shown.decode(), self._decoded(text)
        self._partial = b""


def _has_ended(pod: Obj) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def _restarts(pod: Obj, container: str) -> int:
    for entry in (pod.get("status") or {}).get("containerStatuses") or []:
        if entry.get("name") == container:
            return int(entry.get("restartCount") or 0)
    return 0
