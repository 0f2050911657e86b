"""Finds what a program has started and left behind in other process groups, by a variable that all of them have inherited."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

_PROC = Path("/proc")
_SECONDS = 5.0
_POLL = 0.05


def end_strays(variable: str, value: str) -> None:
    """Kill the processes that were started with a variable, and wait until they have ended. Does nothing where there is no /proc."""
    deadline = time.monotonic() + _SECONDS
    while strays := _with_variable(f"{variable}={value}".encode()):
        for process in strays:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        if time.monotonic() > deadline:
            return
        time.sleep(_POLL)


def _with_variable(entry: bytes) -> list[int]:
    found = []
    for folder in _PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError):  # of another user, or just ended; of one that has ended it is empty
            if int(folder.name) != os.getpid() and entry in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found
