"""Reading containers' log files for the API server: the tail, from there on as they grow, the run before this one."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from trainwright.api.errors import BadRequest
from trainwright.api.objects import Obj, name_of, uid_of
from trainwright.controlplane.node.container import ContainerRun, latest_run, run_of

CHUNK = 64 * 1024
POLL_SECONDS = 0.1
_IDLE_SECONDS = 1.0


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
        since_seconds: int | None = None,
        limit_bytes: int | None = None,
        timestamps: bool = False,
        previous: bool = False,
    ) -> Iterator[bytes]:
        """A container's log in chunks; with `follow`, `b""` now and then while it waits for more.

        Raises BadRequest for a run that never was, while the container has not started, or for what is not
        recorded here: the time of each line.
        """
        if timestamps or since_seconds is not None:
            raise BadRequest(
                "this node does not record the time of each log line: timestamps, sinceSeconds and sinceTime are not available"
            )
        run = self._run(pod, container or "", previous)
        chunks = _chunks(run, follow and not previous, tail_lines)
        return _limited(chunks, limit_bytes) if limit_bytes is not None else chunks

    def _run(self, pod: Obj, container: str, previous: bool) -> ContainerRun:
        folder = self._pods_folder / uid_of(pod)
        run = latest_run(container, folder)
        if run is None:
            raise BadRequest(f'container "{container}" in pod "{name_of(pod)}" is waiting to start: ContainerCreating')
        if not previous:
            return run
        if run.attempt == 0:
            raise BadRequest(f'previous terminated container "{container}" in pod "{name_of(pod)}" not found')
        return run_of(container, run.attempt - 1, folder)


def tail_of(path: Path, lines: int) -> list[str]:
    """The last lines of a log file, decoded leniently; empty for a file that does not exist."""
    try:
        with open(path, "rb") as file:
            file.seek(_tail_offset(file, lines))
            return file.read().decode("utf-8", "replace").splitlines()
    except FileNotFoundError:
        return []


def _chunks(run: ContainerRun, follow: bool, tail_lines: int | None) -> Iterator[bytes]:
    try:
        file = open(run.log, "rb")  # noqa: SIM115  (closed below, when the reader is done)
    except FileNotFoundError:
        return
    with file:
        if tail_lines is not None:
            file.seek(_tail_offset(file, tail_lines))
        idle = 0.0
        while True:
            over = not follow or run.exited() is not None  # asked before the read, so that the last words are read
            while chunk := file.read(CHUNK):
                idle = 0.0
                yield chunk
            if over:
                return
            time.sleep(POLL_SECONDS)
            idle += POLL_SECONDS
            if idle >= _IDLE_SECONDS:
                idle = 0.0
                yield b""


def _limited(chunks: Iterator[bytes], limit: int) -> Iterator[bytes]:
    for chunk in chunks:
        yield chunk[:limit]
        limit -= len(chunk)
        if limit <= 0:
            return


def _tail_offset(file: BinaryIO, lines: int) -> int:
    """Where the last `lines` lines begin, found from the end without reading the whole file."""
    position = file.seek(0, os.SEEK_END)
    if lines <= 0:
        return position
    needed, first = lines, True
    while position > 0:
        size = min(CHUNK, position)
        position -= size
        file.seek(position)
        block = file.read(size)
        end = len(block) - 1 if first and block.endswith(b"\n") else len(block)
        first = False
        while (found := block.rfind(b"\n", 0, end)) >= 0:
            needed -= 1
            if needed == 0:
                return position + found + 1
            end = found
    return 0
