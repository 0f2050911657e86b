"""The log of one container as lines, each once, however often the connection breaks, repeats itself, or the container starts anew."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from trainwright.api.errors import ApiError, BadRequest, Forbidden, NotFound
from trainwright.api.kinds import POD
from trainwright.api.objects import Obj, name_of, namespace_of, uid_of
from trainwright.cluster.protocol import Cluster
from trainwright.jobs.log_place import Place, split_stamp

LOOK_SECONDS = 0.5
MOST_LOST = 120
"""Connections in a row that may fail, a minute's worth."""
MOST_LINE = 64 * 1024
"""Bytes of the longest line that is kept whole: a progress bar may be one line of many megabytes."""
_CUT = b" ... (cut)"


@dataclass
class ContainerLog:
    """One container of one pod. `since` is RFC 3339; `tail` counts for the first connection only."""

    cluster: Cluster
    pod: Obj
    container: str
    since: str = ""
    tail: int | None = None
    closed: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._place = Place(self.since, tailed=self.tail is not None)
        self.restarts = _restarts(self.pod, self.container)
        """Of the container, as they were seen last."""
        self._unfinished = b""

    def read(self, *, previous: bool = False) -> Iterator[tuple[str, str]]:
        """`(time, line)` of all that is there now. Raises ApiError."""
        yield from self._connection(follow=False, previous=previous)
        yield from self._rest()

    def look(self, pod: Obj) -> Iterator[tuple[str, str]]:
        """`(time, line)` of what is new since the last look, `pod` being as it is now. Raises ApiError.

        Whoever takes only a part of it gets the rest at the next look.
        """
        yield from self._of_the_run_before(pod)
        yield from self._connection(follow=False)
        if _has_ended(pod):
            yield from self._rest()

    def follow(self) -> Iterator[tuple[str, str]]:
        """`(time, line)` until the container has ended for good, its pod is gone, or `closed`. A broken connection is made again."""
        lost, ended = 0, False
        while not self.closed.is_set():
            try:
                pod = self.cluster.get(POD, name_of(self.pod), namespace_of(self.pod))
                if uid_of(pod) != uid_of(self.pod):
                    break
                ended = _has_ended(pod)
                yield from self._of_the_run_before(pod)
                for line in self._connection(follow=not ended):
                    lost = 0
                    yield line
                if ended:
                    break
            except NotFound:
                break
            except BadRequest:  # its container has not started
                if ended:
                    break
            except Forbidden as error:
                yield "", f"(this log cannot be read: {error.message})"
                return
            except ApiError as error:
                lost += 1
                if lost > MOST_LOST:
                    yield "", f"(the connection to this log broke: {error.message})"
                    return
            self.closed.wait(LOOK_SECONDS)
        yield from self._rest()

    def _of_the_run_before(self, pod: Obj) -> Iterator[tuple[str, str]]:
        """The last words of a run that was followed when the container started anew."""
        restarts = _restarts(pod, self.container)
        missed = restarts - self.restarts
        if missed <= 0:
            return
        if missed > 1:
            yield "", f"(the container was started {missed} times in between; the logs of all but the last two runs are lost)"
        try:
            yield from self._connection(follow=False, previous=True)
            yield from self._rest()
        except BadRequest:  # it is not kept
            self._unfinished = b""
        self.restarts = restarts

    def _connection(self, *, follow: bool, previous: bool = False) -> Iterator[tuple[str, str]]:
        """The new lines of one connection; a line that it breaks in is left to the next."""
        options: dict[str, Any] = {"container": self.container, "follow": follow, "timestamps": True}
        options |= {"since_time": self._place.since(), "previous": previous}
        if self.tail is not None and not self._place.begun and not previous:
            options["tail_lines"] = self.tail
        self._place.connected()
        self._unfinished = pending = b""
        for chunk in self.cluster.logs(name_of(self.pod), namespace_of(self.pod), **options):
            *complete, pending = (pending + chunk).split(b"\n")
            pending = _shortened(pending)
            for line in complete:
                stamp, shown, text = split_stamp(line)
                if self._place.takes(stamp):
                    yield shown.decode(), _text(text)
        self._unfinished = pending

    def _rest(self) -> Iterator[tuple[str, str]]:
        """What stands after the last line end of a log that nobody writes to any more."""
        stamp, shown, text = split_stamp(self._unfinished)
        if self._unfinished and self._place.takes(stamp):
            yield shown.decode(), _text(text)
        self._unfinished = b""


def _shortened(pending: bytes) -> bytes:
    return pending if len(pending) <= 2 * MOST_LINE else pending[: MOST_LINE + 64]


def _text(line: bytes) -> str:
    whole = line if len(line) <= MOST_LINE else line[:MOST_LINE] + _CUT
    return whole.decode("utf-8", "replace")


def _has_ended(pod: Obj) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def _restarts(pod: Obj, container: str) -> int:
    for entry in (pod.get("status") or {}).get("containerStatuses") or []:
        if entry.get("name") == container:
            return int(entry.get("restartCount") or 0)
    return 0
