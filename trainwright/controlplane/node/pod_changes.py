"""Takes the changes of pods one by one, and those that fail again later: an error concerns its pod, and no other one.

Whatever a pod or the machine does to the handler (an odd object, a full disk, no file handles, no threads), the watch goes on.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from trainwright.api.objects import Obj, name_of, namespace_of, uid_of
from trainwright.backoff import Backoff
from trainwright.controlplane.life_signs import LifeSign
from trainwright.controlplane.node.lifecycle.events import PodEvent

REASON = "FailedOnNode"
"""Of the Event."""
_BACKOFF = Backoff(0.5, 30.0)
_POLL_SECONDS = 0.25
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Failed:
    event: str
    pod: Obj
    failures: int
    due: float
    """By the monotonic clock."""


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
        except Exception as error:
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
