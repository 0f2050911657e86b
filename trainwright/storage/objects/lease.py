"""A lease in an object store: an object that its holder rewrites every few seconds to keep it.

No clocks are compared: a waiting process takes the lease after it has seen the same version for the whole lease duration, or at
once if the holder was a process of this machine that has ended: the retry of a killed step goes on at once.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import secrets
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from trainwright.storage.errors import LockLost, StorageError

log = logging.getLogger(__name__)
LEASE_SECONDS = 30.0
"""Time until the lease of a killed holder expires."""
_TIMEOUT_SECONDS = 6 * 3600.0
"""Maximum wait for a holder that is alive: longer than an export of hundreds of gigabytes takes."""
_POLL = 0.5


class LeaseObject(Protocol):
    """The object that stores a lease."""

    def put_if(self, content: bytes, version: str | None) -> str | None:
        """Write if the object has this version (None: if it does not exist). Returns the new version, or None. Raises StorageError."""
        ...

    def read(self) -> tuple[bytes, str] | None:
        """Return content and version, or None if it does not exist."""
        ...

    def remove(self) -> None: ...


@contextlib.contextmanager
def hold_lease(
    lease: LeaseObject,
    where: str,
    *,
    lease_seconds: float = LEASE_SECONDS,
    timeout: float = _TIMEOUT_SECONDS,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[HeldLease]:
    """Hold the lease; other processes wait. The store must support conditional writes.

    Raises StorageError after `timeout` seconds of waiting, and LockLost at the end if the lease was lost.
    """
    holder = HeldLease(lease, where, lease_seconds, clock)
    holder.acquire(timeout, sleep)
    stop = threading.Event()
    renewal = threading.Thread(target=holder.renew_until, args=(stop,), name="lease", daemon=True)
    renewal.start()
    try:
        yield holder
        holder.require()
    finally:
        stop.set()
        renewal.join()
        if not holder.is_lost():
            with contextlib.suppress(StorageError):  # it expires by itself
                lease.remove()


class HeldLease:
    """A lease that is held, and renewed by a thread. `was_taken_over` says that its earlier holder had not released it."""

    def __init__(self, lease: LeaseObject, where: str, lease_seconds: float, clock: Callable[[], float]):
        self._lease, self._where, self._lease_seconds, self._clock = lease, where, lease_seconds, clock
        self._name = secrets.token_hex(8)
        self._renewals = 0
        self._version: str | None = None
        self._renewed_at = clock()
        self.was_taken_over = False
        self._is_taken = False
        self._renewing = threading.Lock()

    def require(self) -> None:
        """Raise LockLost, so that a process that was frozen writes nothing more.

        A lease that has expired, in an outage, is still held if nobody has taken it: then it can be renewed.
        """
        if self.is_lost() and not self._renew():
            raise LockLost(f"{self._where}: the lock was lost while it was held (the process or the network stalled); try again")

    def acquire(self, timeout: float, sleep: Callable[[float], None]) -> None:
        deadline = self._clock() + timeout
        seen_version, since, is_waiting = "", self._clock(), False
        while not self._write(None):
            current = self._lease.read()
            if current is not None and current[1] != seen_version:
                seen_version, since = current[1], self._clock()
                holder = b" ".join(current[0].split()[2:]).decode("ascii", "replace")  # empty if it is not recorded
                # nobody will renew it: there is no need to wait
                if has_ended(holder) and self._write(seen_version):
                    log.info("the lock of a process of this machine that has ended was taken over uri=%s", self._where)
                    self.was_taken_over = True
                    return
                if not is_waiting:
                    log.info("waiting for another process to release its lock, or for the lock to expire uri=%s", self._where)
                is_waiting = True
            elif current is not None and self._clock() - since > self._lease_seconds and self._write(seen_version):
                log.warning("an expired lock was taken over uri=%s", self._where)
                self.was_taken_over = True
                return
            if self._clock() >= deadline:
                raise StorageError(f"{self._where}: another process has held this lock for {timeout:.0f} s; try again later")
            sleep(_POLL)

    def renew_until(self, stop: threading.Event) -> None:
        while not stop.wait(self._lease_seconds / 4):
            try:
                if not self._renew():  # another process has the lease: to write it would take it back
                    return
            except StorageError as error:  # an outage: the lease is kept if it is renewed before it expires
                log.debug("the lock could not be renewed error=%s", error)

    def _renew(self) -> bool:
        """Rewrite the lease, unless another process has taken it. Returns whether it is held. Raises StorageError."""
        with self._renewing:
            self._is_taken = self._is_taken or not self._write(self._version)
            return not self._is_taken

    def is_lost(self) -> bool:
        return self._is_taken or self._clock() - self._renewed_at > self._lease_seconds

    def _write(self, version: str | None) -> bool:
        """Write the lease if the version matches; returns whether it is held. A rejection may follow a retry of a successful write."""
        self._renewals += 1
        before, text = self._clock(), f"{self._name} {self._renewals} {identity()}\n".encode()
        new = self._lease.put_if(text, version)
        if new is None:
            current = self._lease.read()
            new = current[1] if current is not None and current[0] == text else None
        if new is None:
            return False
        self._version, self._renewed_at = new, before
        return True


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
