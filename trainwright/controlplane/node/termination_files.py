"""Reads the termination message that a run of a container left, and adds it to how it ended."""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from pathlib import Path

from trainwright.api.objects import Obj
from trainwright.controlplane.node.container import ContainerRun
from trainwright.controlplane.node.lifecycle.container_state import Termination
from trainwright.controlplane.node.lifecycle.termination_message import FILE_BYTES, LOG_LINES, termination_message
from trainwright.controlplane.node.log_entries import read_blocks, strip_headers, tail_position


def with_message(container: Obj, run: ContainerRun, ended: Termination) -> Termination:
    """Return `ended` with the run's termination message, unless the node itself has one for it."""
    if ended.message:
        return ended
    log_end = b""
    if ended.code and container.get("terminationMessagePolicy") == "FallbackToLogsOnError":
        log_end = b"".join(
            strip_headers(block) for block in read_blocks(run.log, tail_position(run.log, LOG_LINES), lambda: True)
        )
    message = termination_message(container, ended.code, _end_of(message_file(run)), log_end)
    return replace(ended, message=message)


def message_file(run: ContainerRun) -> Path:
    """Return the file that is mounted at the container's terminationMessagePath; beside the run's folder, as it is made first."""
    return run.folder.with_name(f"{run.attempt}.termination-log")


def _end_of(path: Path) -> bytes:
    """The end of a file that the container has written. It may have replaced it by anything: only a regular file is read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:  # removed by the container, or with its pod
        return b""
    try:
        found = os.fstat(descriptor)
        return os.pread(descriptor, FILE_BYTES, max(found.st_size - FILE_BYTES, 0)) if stat.S_ISREG(found.st_mode) else b""
    finally:
        os.close(descriptor)
