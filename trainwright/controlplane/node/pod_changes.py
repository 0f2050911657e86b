"""The news that wake the workers of pods: changes of the pods' objects, and those of their containers' states.

An error concerns its pod, and no other one: whatever a pod or the machine does to the handler (an odd object, a full disk, no file
handles, no threads), the watch continues, and a change that fails is retried later. Supervisors write a pod's UID to a FIFO, so that
nobody polls; what is written while no node listens is lost, and a node that starts reads all files.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import select
import stat
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from trainwright.api.objects import Obj, name_of, namespace_of, uid_of
from trainwright.backoff import Backoff
from trainwright.controlplane.life_signs import LifeSign
from trainwright.controlplane.node.lifecycle.events import PodEvent

REASON = "FailedOnNode"
"""Of the Event."""
_BACKOFF = Backoff(0.5, 30.0)
_POLL_SECONDS = 0.25
_READ_BYTES = 64 * 1024
log = logging.getLogger(__name__)


class PodChanges:
    """Hands changes to `take`, and failed ones again with growing pauses until they succeed or a newer one replaces them.

    `tell` records an Event of the pod. Start it with `start`; it ends after `stop` is set.
    """

    def __init__(self, take: Callable[[str, Obj], None], tell: Callable[[Obj, PodEvent], None], stop: threading.Event):
        self._take, self._tell, self._stop = take, tell, stop
        self._failed: dict[str, _Failed] = {}
        self._late: dict[str, int] = {}
        """How often a change that had been taken has failed after all, by the pod's UID."""
        self._lock = threading.RLock()
        self._thread = threading.Thread(target=self._run, name="pod-changes", daemon=True)
        self._sign = LifeSign(self._thread)

    def start(self) -> None:
        self._thread.start()

    def problems(self) -> list[str]:
        """Why changes are not taken: the thread has ended, or one change is not done with."""
        return self._sign.problems()

    def handle(self, event: str, pod: Obj) -> None:
        """Take a change (ADDED, MODIFIED, DELETED). Raises nothing."""
        with self._lock:
            self._failed.pop(uid_of(pod), None)
            self._late.pop(uid_of(pod), None)
            self._try(_Failed(event, pod, 0, 0.0))

    def fail(self, event: str, pod: Obj, error: Exception) -> None:
        """Note that a change which had been taken has failed after all; it is tried again, unless the pod has changed since."""
        with self._lock:
            if (uid := uid_of(pod)) not in self._failed:
                failures = self._late.get(uid, 0)
                self._late[uid] = failures + 1
                self._note(_Failed(event, pod, failures, 0.0), error)

    def _run(self) -> None:
        while not self._stop.wait(_POLL_SECONDS):
            with self._lock:
                due = [failed for failed in self._failed.values() if failed.due <= time.monotonic()]
                for failed in due:
                    del self._failed[uid_of(failed.pod)]
                    self._try(failed)

    def _try(self, change: _Failed) -> None:
        try:
            with self._sign.turn():
                self._take(change.event, change.pod)
        except Exception as error:  # whatever a pod or the machine does, the watch continues
            self._note(change, error)

    def _note(self, change: _Failed, error: Exception) -> None:
        pod, failures = change.pod, change.failures + 1
        self._failed[uid_of(pod)] = replace(change, failures=failures, due=time.monotonic() + _BACKOFF.pause(failures))
        message = f"{type(error).__name__}: {error}"
        try:
            log.error(
                "event=pod_change_failed pod=%s/%s change=%s failures=%d error=%s",
                *(namespace_of(pod), name_of(pod), change.event, failures, message),
                exc_info=failures == 1,
            )
            if failures == 1 and change.event != "DELETED":
                self._tell(pod, PodEvent("Warning", REASON, f"the node cannot take the pod, and tries again: {message}"))
        except Exception:
            log.debug("event=pod_change_not_told", exc_info=True)  # the disk of the log or of the store may be full, too


@dataclass(frozen=True)
class _Failed:
    event: str
    pod: Obj
    failures: int
    due: float
    """By the monotonic clock."""


class Changes:
    """Listens on the FIFO at `path`, and calls `wake` with each UID, in a thread of its own."""

    def __init__(self, path: Path, wake: Callable[[str], None]):
        self.path = path
        self._wake = wake
        self._file = -1
        self._ended, self._end = os.pipe()
        self._thread = threading.Thread(target=self._run, name="pod-news", daemon=True)
        self._sign = LifeSign(self._thread)

    def start(self) -> bool:
        """Start listening. Returns False where the file system has no FIFOs: workers then have to poll."""
        try:
            with contextlib.suppress(FileNotFoundError):
                if not stat.S_ISFIFO(self.path.lstat().st_mode):
                    self.path.unlink()
            with contextlib.suppress(FileExistsError):
                os.mkfifo(self.path, 0o600)
            self._file = os.open(self.path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)  # O_RDWR: no end of file without writers
        except OSError as error:
            log.warning("event=no_fifo path=%s error=%s", self.path, errno.errorcode.get(error.errno or 0))
            return False
        self._thread.start()
        return True

    def problems(self) -> list[str]:
        """Why nobody listens; nothing where there are no FIFOs."""
        return self._sign.problems() if self._file >= 0 else []

    def stop(self) -> None:
        """Stop listening."""
        os.close(self._end)
        if self._thread.is_alive():
            self._thread.join()
        os.close(self._ended)
        if self._file >= 0:
            os.close(self._file)

    def _run(self) -> None:
        rest = b""
        poll = select.poll()  # select() takes no descriptors above 1023
        poll.register(self._file, select.POLLIN)
        poll.register(self._ended, select.POLLHUP)
        while True:
            if any(file == self._ended for file, _ in poll.poll()):
                return  # stopped
            with self._sign.turn():
                *lines, rest = (rest + os.read(self._file, _READ_BYTES)).split(b"\n")
                for uid in dict.fromkeys(lines):
                    self._wake(uid.decode("ascii", "replace"))
