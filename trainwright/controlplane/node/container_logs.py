"""Reads containers' logs: for the API server (tail, follow, previous run), for attach sessions, and for termination messages.

The supervisor writes a header before each line. Lines without a header, as after a full disk, are returned unchanged.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from trainwright.api.errors import BadRequest
from trainwright.api.kinds import POD
from trainwright.api.objects import Obj, name_of, uid_of
from trainwright.controlplane.apiserver.wire.api_errors import not_found_error
from trainwright.controlplane.node.container import ContainerRun, latest_run, run_of
from trainwright.controlplane.node.container_image import PULL_BACK_OFF, PULL_FAILED
from trainwright.controlplane.node.lifecycle.container_state import published_status
from trainwright.controlplane.node.registration import NODE_NAME

_IDLE_SECONDS = 1.0
_WORDS = {PULL_FAILED: "image can't be pulled", PULL_BACK_OFF: "trying and failing to pull image"}
"""For reasons that are not said as they are. Source: validateContainerLogStatus of the kubelet."""
Stream = Literal["All", "Stdout", "Stderr"]
CHUNK = 64 * 1024
POLL_SECONDS = 0.1
_STAMP = rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z"
_HEAD = re.compile(rb"(" + _STAMP + rb") (stdout|stderr) ([FP]) ")
_HEADS = re.compile(rb"(?m)^" + _STAMP + rb" std(?:out|err) (?:F |P (.*)\n)")
_LINE_ENDS = re.compile(rb"(?m)^(?!" + _STAMP + rb" std(?:out|err) P ).*\n")


class ContainerLogs:
    """The logs below a node's pods folder. Implements the API server's `Logs`."""

    def __init__(self, pods_folder: Path):
        self._pods_folder = pods_folder

    def open(
        self,
        pod: Obj,
        container: str | None,
        *,
        follow: bool = False,
        tail_lines: int | None = None,
        since: datetime | None = None,
        limit_bytes: int | None = None,
        timestamps: bool = False,
        previous: bool = False,
        stream: Stream = "All",
    ) -> Iterator[bytes]:
        """Yield a container's log in chunks; with `follow`, also `b""` from time to time while waiting for more.

        Raises BadRequest if the previous run does not exist, or the container has not started; NotFound for a pod of another node.
        """
        run = self._run(pod, container or "", previous)
        follow = follow and not previous
        start = Position() if tail_lines is None else tail_position(run.log, tail_lines)
        blocks = read_blocks(run.log, start, lambda: not follow or run.termination() is not None)
        earliest = since.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z").encode() if since else b""
        filtered = map(LogFilter(stream, earliest, timestamps), blocks)
        chunks = _with_heartbeats(filtered)
        return _limit_bytes(chunks, limit_bytes) if limit_bytes is not None else chunks

    def _run(self, pod: Obj, container: str, previous: bool) -> ContainerRun:
        """Return the run whose log is meant. The refusals are the kubelet's (validateContainerLogStatus)."""
        folder = self._pods_folder / uid_of(pod)
        run, where = latest_run(container, folder), f'container "{container}" in pod "{name_of(pod)}"'
        if previous:
            if run is None or run.attempt == 0:
                raise BadRequest(f"previous terminated {where} not found")
            return run_of(container, run.attempt - 1, folder)
        node = str((pod.get("spec") or {}).get("nodeName") or NODE_NAME)
        if run is None and node != NODE_NAME:  # one that was created with another node's name
            raise not_found_error(POD, node)
        if run is None:
            state = published_status(pod, container).get("state") or {}
            if "terminated" in state:  # ended with its pod, without a run here
                raise BadRequest(f"{where} is terminated")
            reason = (state.get("waiting") or {}).get("reason") or "ContainerCreating"
            raise BadRequest(f"{where} is waiting to start: {_WORDS.get(reason, reason)}")
        return run


def _with_heartbeats(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Limit the frequency of `b""` chunks, which wake a waiting reader."""
    idle = 0.0
    for chunk in chunks:
        idle = 0.0 if chunk else idle + POLL_SECONDS
        if chunk or idle >= _IDLE_SECONDS:
            idle = 0.0
            yield chunk


def _limit_bytes(chunks: Iterator[bytes], limit: int) -> Iterator[bytes]:
    for chunk in chunks:
        yield chunk[:limit]
        limit -= len(chunk)
        if limit <= 0:
            return  # the limit is reached


def segments(log: Path) -> list[tuple[int, Path]]:
    """Return the existing files of a log with their numbers, oldest first."""
    try:
        paths = [log.parent / name for name in os.listdir(log.parent) if name.startswith(log.name)]
    except FileNotFoundError:  # removed with its pod
        return []
    return sorted((int(path.suffix[1:] or 0), path) for path in paths if path == log or path.suffix[1:].isdigit())


@dataclass(frozen=True)
class Position:
    """A position between two lines of a log: file number and byte offset."""

    number: int = 0
    offset: int = 0


def tail_position(log: Path, lines: int) -> Position:
    """Return where the last `lines` lines start, without reading the whole log; the start of what is left if it shrinks meanwhile."""
    try:
        return _tail_position(log, lines)
    except FileNotFoundError:  # rotated away, or removed with its pod
        return Position()


def _tail_position(log: Path, lines: int) -> Position:
    needed, is_end = lines, True
    for number, path in reversed(segments(log)):
        end = path.stat().st_size
        if lines <= 0:
            return Position(number, end)
        while end > 0:
            start, ends = _line_ends(path, end)
            if is_end:  # an incomplete line counts
                needed -= not ends or ends[-1] < end
                is_end = False
            if len(ends) > needed:
                return Position(number, ends[-needed - 1])
            needed, end = needed - len(ends), start
    return Position()


def _line_ends(path: Path, end: int) -> tuple[int, list[int]]:
    """Return the start of a part of the file before `end`, between two entries, and where lines end after it."""
    span = CHUNK
    with open(path, "rb") as file:
        while True:
            start = max(end - span, 0)
            file.seek(start)
            data = file.read(end - start)
            # The first entry may start before `start`.
            first = data.find(b"\n") + 1 if start else 0
            if not start or 0 < first < len(data):
                return start + first, [start + found.end() for found in _LINE_ENDS.finditer(data, first)]
            span *= 4


def read_blocks(log: Path, position: Position, is_over: Callable[[], bool]) -> Iterator[bytes]:
    """Yield complete lines from `position` on, across files, until `is_over` and the log is read; `b""` while waiting.

    Files may be removed while they are read, by rotation or with their pod: what is left of the log is read on.
    """
    number, offset = position.number, position.offset
    rest = b""
    while True:
        over = is_over()  # checked before the read, so that the last output is read
        later = [(n, path) for n, path in segments(log) if n >= number]
        if not later:  # the log is not made yet, or was removed with its pod
            if over:
                return
            time.sleep(POLL_SECONDS)
            yield b""
            continue
        if later[0][0] > number:
            (number, _), offset, rest = later[0], 0, b""  # the file was rotated away before it was read
        try:
            with open(later[0][1], "rb") as file:
                file.seek(offset)
                while chunk := file.read(CHUNK):
                    offset += len(chunk)
                    lines, newline, rest = (rest + chunk).rpartition(b"\n")
                    if newline:
                        yield lines + b"\n"
        except FileNotFoundError:  # removed since it was listed
            continue
        if len(later) > 1:  # this file is complete
            number, offset = later[1][0], 0
        elif over:
            if rest:
                yield rest
            return  # the run has ended, and all of its output is read
        else:
            time.sleep(POLL_SECONDS)
            yield b""


def strip_headers(block: bytes) -> bytes:
    """Return the container's output without headers, byte for byte."""
    return _HEADS.sub(rb"\1", block)


@dataclass
class LogFilter:
    """Filters lines by stream and time, and adds timestamps."""

    stream: Stream = "All"
    since: bytes = b""
    """A time in the log's format; such times compare as text."""
    timestamps: bool = False
    _fresh: bool = True

    def __call__(self, block: bytes) -> bytes:
        if not self.timestamps and not self.since and self.stream == "All":
            return strip_headers(block)
        return b"".join(self._select(block))

    def _select(self, block: bytes) -> Iterator[bytes]:
        for time_, stream, text in entries(block):
            if self.stream != "All" and stream and stream != self.stream.lower().encode():
                continue  # of the other stream; lines without a header are of both
            if time_ and time_ < self.since:
                continue  # before the time that was asked for
            yield time_ + b" " + text if self.timestamps and self._fresh and time_ else text
            self._fresh = text.endswith(b"\n")


def entries(block: bytes) -> Iterator[tuple[bytes, bytes, bytes]]:
    """Yield time, stream and text of each entry; time and stream are empty for a line without a header."""
    lines = block.split(b"\n")
    unfinished = lines.pop()
    for line in lines:
        head = _HEAD.match(line)
        if head is None:
            yield b"", b"", line + b"\n"
        else:
            text = line[head.end() :]
            yield head[1], head[2], text + b"\n" if head[3] == b"F" else text
    if unfinished:
        head = _HEAD.match(unfinished)
        yield (head[1], head[2], unfinished[head.end() :]) if head else (b"", b"", unfinished)
