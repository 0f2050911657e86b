"""Names a process so that another one on the same machine can see that it has ended.

A lock whose holder is known to be dead need not be waited for: the retry of a killed step goes on at once.
"""

from __future__ import annotations

import functools
import os
import socket
import uuid
from pathlib import Path


@functools.cache
def machine() -> str:
    """Return what tells machines and process tables apart: this boot of the kernel and the PID namespace."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}.{os.readlink('/proc/self/ns/pid').strip('pid:[]')}"
    except OSError:  # not Linux
        return f"{socket.gethostname()}.{uuid.getnode():x}"


def identity() -> str:
    """Return `MACHINE PID START` of this process."""
    pid = os.getpid()
    return f"{machine()} {pid} {_start(pid)}"


def has_ended(text: str) -> bool:
    """Whether the process with that identity was one of this machine and does not exist any more. Unknown counts as False."""
    match text.split():
        case [where, pid, start] if where == machine() and pid.isascii() and pid.isdigit() and len(pid) < 10:
            return not _exists(int(pid)) or (start != "-" and _start(int(pid)) not in (start, "-"))
        case _:
            return False


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # of another user
        return True
    return True


def _start(pid: int) -> str:
    """Return when the process started, in ticks since boot, so that a reused process id is recognized; `-` if unknown."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return "-"
