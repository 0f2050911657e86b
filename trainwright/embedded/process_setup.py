"""The control plane as a process of this machine: its memory, its log file, and what it reports to systemd.

By default glibc learns from the first large blocks to keep such blocks: after a burst of large objects the process stays large.
Python's garbage collector scans many JSON trees, which have no cycles, repeatedly: with the default settings collections took a fifth
of the time of a busy control plane. The log is bounded in size, readable only by its owner, and the target of stdout and stderr, too:
what other libraries and the interpreter print ends up in the same file, also after it was rotated. Source of reports: sd_notify(3).
"""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import resource
import socket
import sys
from collections.abc import MutableMapping
from dataclasses import dataclass
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import IO

MAX_LOG_BYTES = 10 * 1024 * 1024
"""Size from which the file is continued in a new one, as the logs of containers."""
LOG_FILES = 3
"""The current file and its predecessors, `.1` being the latest."""
_M_MMAP_THRESHOLD, _M_ARENA_MAX = -3, -8
"""Parameters of glibc's mallopt(3)."""
_LARGE_BLOCK = 128 * 1024
"""Bytes from which a block is mapped, and unmapped when it is freed: glibc's initial value, which is then no longer raised."""
_ARENAS = 2
"""Heaps that threads share; each keeps free memory of its own. glibc's default is eight for each CPU."""
_MOST_MEMORY = 4 * 1024**3
"""Bytes, ten times what 10,000 TrainJobs take with their JobSets and pods: whatever takes more is a mistake, or an attack."""
_YOUNG_ALLOCATIONS = 20_000
"""Allocations before a collection of the youngest generation; 700 by default."""
NOTIFY_SOCKET = "NOTIFY_SOCKET"
_NOTIFY_SECONDS = 2.0
"""A full socket of a busy service manager must not keep the control plane from stopping."""
log = logging.getLogger(__name__)


def limit_memory() -> None:
    """Let this process fail to get memory before the machine has none left. Programs of pods get the limit that it was started with.

    That is kept as the hard limit, to which `reset_process` sets theirs: a child inherits it with any environment.
    """
    given = resource.getrlimit(resource.RLIMIT_DATA)[0]
    most = _MOST_MEMORY if given == resource.RLIM_INFINITY else min(given, _MOST_MEMORY)
    resource.setrlimit(resource.RLIMIT_DATA, (most, given))


class LogFile(RotatingFileHandler):
    """A log handler that rotates its file. With `redirects`, stdout and stderr of the process follow to the new file."""

    def __init__(self, path: Path, *, redirects: bool, max_bytes: int = MAX_LOG_BYTES):
        self._redirects = redirects
        super().__init__(path, maxBytes=max_bytes, backupCount=LOG_FILES - 1, encoding="utf-8", errors="backslashreplace")

    def _open(self) -> TextIOWrapper:
        return open(self.baseFilename, "a", encoding=self.encoding, errors=self.errors, opener=_private)

    def doRollover(self) -> None:  # noqa: N802 - the name of logging
        """Start a new file; removes the oldest."""
        super().doRollover()
        if self._redirects and self.stream is not None:
            for output in (sys.stdout, sys.stderr):
                os.dup2(self.stream.fileno(), output.fileno())


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def log_handler(path: Path) -> logging.Handler:
    """The handler of a control plane: rotates the file if stderr is redirected to it, otherwise writes to stderr."""
    if path.exists() and os.path.samestat(os.fstat(sys.stderr.fileno()), os.stat(path)):
        return LogFile(path, redirects=True)
    return logging.StreamHandler(sys.stderr)


def open_log(path: Path) -> IO[bytes]:
    """Open the log file for the output of a new control plane; rotated first if it is full."""
    if path.exists() and path.stat().st_size >= MAX_LOG_BYTES:
        handler = LogFile(path, redirects=False)
        handler.doRollover()
        handler.close()
    return open(path, "ab", opener=_private)


def tune_heap() -> None:
    """Call before threads are started. Affects the whole process; does nothing with a C library other than glibc."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BLOCK)
        mallopt(_M_ARENA_MAX, _ARENAS)


def tune_gc() -> None:
    """Call once everything is loaded: existing objects are excluded from collections. Affects the whole process."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG_ALLOCATIONS)


@dataclass(frozen=True)
class ServiceManager:
    """The service manager that listens at this address, or none."""

    address: str = ""

    @classmethod
    def take_from(cls, environment: MutableMapping[str, str]) -> ServiceManager:
        """Return the one that the environment names, and remove it there: child processes must not report for this one."""
        return cls(environment.pop(NOTIFY_SOCKET, ""))

    def notify(self, *assignments: str) -> None:
        """Send assignments such as `READY=1`. A failure is logged: the control plane works without its service manager."""
        if not self.address:
            return
        address = f"\0{self.address[1:]}" if self.address.startswith("@") else self.address  # @: the abstract namespace
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.settimeout(_NOTIFY_SECONDS)
                sender.connect(address)
                sender.send("\n".join(assignments).encode())
        except OSError as error:
            log.warning("event=service_manager_not_notified error=%s", error)
