"""Reads the log of one container, each line once, across lost connections, repeated lines and container restarts.

A kubelet honours only whole seconds of `sinceTime`, and may send the whole log again: the cursor accepts each line once. A progress
bar may be one line of many megabytes, and what follows it is what matters: lines are assembled in bounded memory.
"""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from trainwright.api.errors import ApiError, BadRequest, Forbidden, NotFound
from trainwright.api.kinds import POD
from trainwright.api.objects import Obj, name_of, namespace_of, uid_of
from trainwright.cluster.protocol import Cluster

POLL_SECONDS = 0.5
MAX_LOST_CONNECTIONS = 120
"""Consecutive connections that may fail, about one minute."""
MAX_LINE_BYTES = 64 * 1024
"""Of longer lines the begin and the end are kept: a progress bar may be a single line of many megabytes."""
NOT_KEPT = "... lines not shown: the node has not kept them"
"""In place of lines that were rotated away before they were read."""
MAX_EXACT_BYTES = 4 * 1024 * 1024
"""Of the lines of an exact log; a follower keeps some of them in memory."""
_SECOND = 1_000_000_000
_SLACK = 1
"""Seconds before the last line that are requested again: lines of stdout and stderr may be slightly out of order."""
_SET_BACK = 10
"""Seconds: a line older than the last one by more than this means that the clock was set back; the position follows it."""


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
                if uid_of(pod) != uid_of(self.pod):  # another pod has its name: this one is deleted
                    break
                ended = self.has_ended(pod)
                is_new_run = _restarts(pod, self.container) > self.restarts
                yield from self._previous_run(pod)
                for line in self._read_connection(follow=not ended, is_new_run=is_new_run):
                    lost, self._said = 0, ""
                    yield line
                if ended:  # before the connection was opened, so that it had all lines
                    break
            except NotFound:  # deleted, and its log with it
                break
            except BadRequest:  # the container has not started
                if ended:  # and never will
                    break
            except ApiError as error:
                # After a lost connection the API server was restarted, and refuses everybody for a moment.
                if isinstance(error, Forbidden) and not lost:
                    yield from self._fail(f"(this log cannot be read: {error.message})")
                    return
                lost += 1
                if lost > MAX_LOST_CONNECTIONS:  # without a line in between: it does not come back
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
        if missed <= 0:  # the run that was read goes on
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
                if stamp is None and is_kubelet_message(line):  # no output of the program
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


def _restarts(pod: Obj, container: str) -> int:
    for entry in (pod.get("status") or {}).get("containerStatuses") or []:
        if entry.get("name") == container:
            return int(entry.get("restartCount") or 0)
    return 0


def _has_ended(pod: Obj) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


class LogCursor:
    """Position in one log. Stores the timestamps of the last two seconds of lines, but no lines."""

    def __init__(self, since: str = "", *, tailed: bool = False, after: str = ""):
        """`since` and `after` are RFC 3339 times to begin at; a line of the time `after` has been shown by somebody else."""
        self._shown, _, _ = split_stamp(f"{after} ".encode())
        self._first_since = since if self._shown is None else _whole_second(self._shown // _SECOND)
        self._tailed = tailed
        """Whether the first connection requested only a tail: lines before its first one are skipped."""
        self._first: int | None = None
        self._recent: dict[int, Counter[int]] = {}
        self._repeats: Counter[int] = Counter()
        self._floor: int | None = None
        self._latest: int | None = None
        self._accepted = True
        self._repeated = False

    @property
    def has_position(self) -> bool:
        """Whether a line with a timestamp has been accepted."""
        return self._latest is not None

    @property
    def is_beyond(self) -> bool:
        """Whether the connection has begun behind the position: it has repeated no line, although the last one was requested."""
        return (self._latest is not None or self._shown is not None) and not self._repeated

    def is_shown(self, stamp: int) -> bool:
        """Whether a line of this time has been shown by somebody else."""
        return self._shown is not None and stamp <= self._shown

    def since(self) -> str:
        """Return the `sinceTime` for the next connection; empty for the whole log."""
        if self._latest is None:  # nothing was read yet
            return self._first_since
        return _whole_second(self._latest - _SLACK)

    def start_connection(self) -> None:
        """Prepare for a connection opened with `since`: accepted lines from that time on will be repeated."""
        self._repeats, self._repeated = Counter(), False
        for stamps in self._recent.values():
            self._repeats.update(stamps)
        self._floor = None if self._latest is None else (self._latest - _SLACK) * _SECOND

    def accept(self, stamp: int | None) -> bool:
        """Record the next line of the connection; returns whether it is new. A line without a timestamp continues the previous one."""
        if stamp is not None:
            self._accepted = self._is_new(stamp)
            self._repeated = self._repeated or not self._accepted
            if self._accepted:
                second = stamp // _SECOND
                self._first = stamp if self._first is None else self._first
                self._recent.setdefault(second, Counter())[stamp] += 1
                if self._latest is None or second > self._latest or second < self._latest - _SET_BACK:
                    self._latest = second
                    self._recent = {kept: stamps for kept, stamps in self._recent.items() if second - _SLACK <= kept <= second}
        return self._accepted

    def _is_new(self, stamp: int) -> bool:
        if self._repeats[stamp] > 0:  # read before the connection was lost
            self._repeats[stamp] -= 1
            return False
        if self._floor is not None and stamp < self._floor:  # the server ignored sinceTime
            return False
        if self._floor is not None and self._tailed and self._first is not None and stamp < self._first:
            return False
        is_at_start = self._floor is not None or self._latest is None  # later a clock may be set back
        if self.is_shown(stamp) and is_at_start:
            return False
        self._floor = None  # past the repeated lines: if the clock is set back from here on, no line is lost
        return True


def _whole_second(epoch: int) -> str:
    return datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class LineAssembler:
    """Keeps at most `limit` bytes of each line: of a longer one its begin and its end, or its last redrawn state."""

    def __init__(self, limit: int):
        self._head_limit, self._tail_limit = limit - limit // 4, limit // 4
        self._head = self._tail = b""
        self._left_out = 0

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the lines that end in this chunk, without their line ends."""
        *complete, pending = chunk.split(b"\n")
        for part in complete:
            self._add(part)
            yield self._line()
            self._head = self._tail = b""
            self._left_out = 0
        self._add(pending)

    def rest(self) -> bytes:
        """Return the line that has not ended yet."""
        return self._line()

    def _add(self, part: bytes) -> None:
        space = self._head_limit - len(self._head)
        self._head += part[:space]
        if len(part) > space:
            tail = self._tail + part[space:]
            self._left_out += max(0, len(tail) - self._tail_limit)
            self._tail = tail[-self._tail_limit :]

    def _line(self) -> bytes:
        if not self._left_out:
            return self._head + self._tail
        _, _, text = split_stamp(self._head)
        stamp = self._head[: len(self._head) - len(text)]
        if (redrawn := self._tail.find(b"\r")) >= 0 and self._tail[redrawn:].strip():
            return stamp + self._tail[redrawn + 1 :]
        return self._head + b" ... (%d bytes left out) ... " % self._left_out + self._tail


_STAMP = re.compile(rb"((?:19[7-9]|2\d\d)\d-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d) ")


def split_stamp(line: bytes) -> tuple[int | None, bytes, bytes]:
    """Split a line into `(nanoseconds since the epoch, timestamp, text)`; `(None, b"", line)` if it has no timestamp."""
    match = _STAMP.match(line)
    if match is None:  # what a kubelet sends in place of a log, or the rest of a split line
        return None, b"", line
    try:
        second = _epoch(match[1] + match[3])
    except ValueError:  # text of the program that only looks like a time, such as month 13
        return None, b"", line
    return second * _SECOND + int((match[2] or b"0").ljust(9, b"0")), line[: match.end() - 1], line[match.end() :]


@lru_cache(maxsize=64)
def _epoch(stamp: bytes) -> int:
    return int(datetime.fromisoformat(stamp.decode()).timestamp())


_MESSAGE = re.compile(rb"(unable to retrieve container logs for \S+://|failed to try resolving symlinks in path )")


def is_kubelet_message(line: bytes) -> bool:
    """Whether a line without a timestamp, of a log requested with timestamps, is the kubelet's own."""
    return _MESSAGE.match(line) is not None
