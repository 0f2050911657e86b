"""Enforces a container's memory limit where it has no control group: watches its processes, and kills the largest above the limit.

Standard library only, because a container's supervisor loads this file. Growth within one interval is not prevented.
"""

import _thread
import os
import signal
import time

INTERVAL_SECONDS = 0.1
_DUTY = 0.05
"""The largest share of time that is spent reading: the exact memory of a large process takes long to sum up."""
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_KIB = 1024


class MemoryWatchdog:
    """Watches, in a thread of its own, the descendants of the process `supervisor`, until they have all ended. Linux only."""

    def __init__(self, supervisor: int, limit: int):
        self.has_killed = False
        self._supervisor, self._limit = supervisor, limit
        _thread.start_new_thread(self._run, ())

    def _run(self) -> None:
        while pids := descendants(self._supervisor):
            began = time.monotonic()
            # The resident set counts shared pages in every process: if even this sum fits, the exact one need not be read.
            if sum(map(resident_bytes, pids)) > self._limit:
                used = {pid: proportional_bytes(pid) for pid in pids}
                if sum(used.values()) > self._limit:
                    self.has_killed = True
                    _kill(max(used, key=lambda pid: used[pid]))
            time.sleep(max(INTERVAL_SECONDS, (time.monotonic() - began) / _DUTY))


def descendants(pid: int) -> list:  # type: ignore[type-arg]
    """Return the ids of the children of a process, of their children, and so on."""
    found: list[int] = []
    waiting = [pid]
    while waiting:
        children = _children(waiting.pop())
        found += children
        waiting += children
    return found


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process; 0 if it has ended."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE_BYTES
    except (FileNotFoundError, ProcessLookupError):  # it has ended
        return 0


def proportional_bytes(pid: int) -> int:
    """Return the memory of a process, with its share only of shared pages; its resident memory where that is not readable."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            for line in file:
                if line.startswith(b"Pss:"):
                    return int(line.split()[1]) * _KIB
    except (FileNotFoundError, ProcessLookupError, PermissionError):  # ended, an old kernel, or not readable by this user
        return resident_bytes(pid)
    return 0


def _children(pid: int) -> list:  # type: ignore[type-arg]
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):  # a thread may have forked
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                found += map(int, file.read().split())
    except (FileNotFoundError, ProcessLookupError):  # the process or a thread has ended
        return found
    return found


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:  # it has ended meanwhile
        return
