"""What an observer of a TrainJob remembers from one look to the next: when to look again, why the job waits, how often pods failed.

One look shows none of that: a reason that lasts, a job that does not move, and failures add up over many looks.
"""

from __future__ import annotations

import time
from dataclasses import replace

from trainwright.api import names
from trainwright.api.objects import Obj, uid_of
from trainwright.api.phase import Phase
from trainwright.jobs.diagnosis.errors import TooManyRestarts
from trainwright.jobs.diagnosis.pod_failure import PodFailure, pod_failure
from trainwright.jobs.diagnosis.waiting_reason import WaitingReason
from trainwright.jobs.state.pod_history import SeenPod

STALLED_SECONDS = 9.0
"""Seconds without progress after which the reason is looked for, so that it is shown within ten."""
_CONFIRMED_SECONDS = 4.0
"""Seconds for which a state that cannot recover must have been observed: more than one look."""
_MAX_LOOKS_APART = 12
"""Of the looks at a job and pods that do not change, the first one asks the cluster more, then the second, fourth, eighth, and each
twelfth after that: an event may be the only change."""
_FIRST_REPEAT_SECONDS = 300.0
"""After this time the same reason is shown again, then after twice as long, and so on."""


class Pace:
    """When to look at a job, and which looks ask the cluster for what neither the job nor the watch of its pods shows."""

    def __init__(self) -> None:
        self.due = self._changed = time.monotonic()
        self._status: object = None
        self._known: object = None
        self._looks_until_asking, self._looks_apart = 0, 0

    @property
    def is_stalled(self) -> bool:
        """Whether the status has not changed for so long that the reason is looked for."""
        return time.monotonic() >= self._changed + STALLED_SECONDS

    def is_due(self, trainjob: Obj) -> bool:
        return time.monotonic() >= self.due or _status_of(trainjob) != self._status

    def look_by(self, moment: float) -> None:
        """Make a look due at this moment at the latest."""
        self.due = min(self.due, moment)

    def ask_next(self) -> None:
        """Let the next look ask the cluster."""
        self._known = None

    def begins_look(self, trainjob: Obj, phase: Phase, interval: float) -> bool:
        """Note the status, and when the look after this one is due. False at first for a job that has not started: it may soon."""
        now, status = time.monotonic(), _status_of(trainjob)
        if status != self._status:
            is_first, self._status, self._changed = self._status is None, status, now
            if is_first and phase in (Phase.Starting, Phase.Queued, Phase.Suspended):
                self.due = now + STALLED_SECONDS
                return False
        self.due = now + interval
        if not self.is_stalled:
            self.look_by(self._changed + STALLED_SECONDS)
        return True

    def asks(self, pods: list[Obj], *, is_last: bool) -> bool:
        """Whether this look asks for JobSet, Jobs and events. One after which the wait may fail does (`is_last`)."""
        known = (self._status, [(uid_of(pod), pod["metadata"].get("resourceVersion")) for pod in pods])
        self._looks_until_asking -= 1
        if known != self._known:
            self._known, self._looks_apart, self._looks_until_asking = known, 0, 0
        if self._looks_until_asking > 0 and not is_last:
            return False
        self._looks_apart = min(max(1, 2 * self._looks_apart), _MAX_LOOKS_APART)
        self._looks_until_asking = self._looks_apart
        return True


def _status_of(trainjob: Obj) -> object:
    status = trainjob.get("status") or {}
    return trainjob["spec"].get("suspend"), status.get("conditions"), status.get("jobsStatus")


class LastingReason:
    """Why the job waits, and for how long it has done so for this reason."""

    def __init__(self) -> None:
        self.last: WaitingReason | None = None
        self._since = self._repeat = 0.0

    @property
    def seconds(self) -> float:
        """How long the last reason has lasted."""
        return time.monotonic() - self._since

    @property
    def is_confirmed(self) -> bool:
        """Whether the job cannot recover from the last reason, and it has lasted long enough to be sure."""
        if self.last is None or not self.last.cannot_recover:
            return False
        return self.seconds >= max(_CONFIRMED_SECONDS, self.last.confirmed_after)

    def set(self, reason: WaitingReason | None) -> None:
        """Note what a look has found; None if the job waits no longer."""
        now = time.monotonic()
        if reason is not None and (self.last is None or self.last.key != reason.key):
            self._since, self._repeat, self.last = now, _FIRST_REPEAT_SECONDS, reason
        elif reason is None:
            self.last = None
        elif self.last is not None:  # keep the first wording, so that it is not shown again
            self.last = replace(reason, text=self.last.text)
        if now - self._since >= 2 * self._repeat:
            self._repeat *= 2

    def text(self) -> str:
        """Return the reason in words, which change when it is to be shown again; empty without one."""
        if self.last is None:
            return ""
        minutes = f" (for {self._repeat / 60:.0f} min)" if self.seconds >= self._repeat else ""
        return f"{self.last.text}{minutes}"


class FailureCount:
    """Counts the failures of pods against those that the step allows within one job; None leaves them to the runtime."""

    def __init__(self, allowed: int | None):
        self._allowed = allowed
        self._suspended: set[str] = set()
        """UIDs of the pods that were there when the job was suspended."""
        self._failed: dict[tuple[str, str], PodFailure] = {}
        self._too_often_since = 0.0

    def check(self, trainjob: Obj, pods: list[SeenPod]) -> float | None:
        """Count; returns when to look again, None if pods have not failed too often.

        Raises TooManyRestarts if they have, or one can never run, and the job does not fail by itself within a moment. Whether a pod
        can never run counts only where the step says how often pods may fail: the job is its own.
        """
        if self._allowed is None:
            return None
        if trainjob["spec"].get("suspend"):  # its pods are being stopped: torchrun, for one, exits with 1 on SIGTERM
            self._suspended |= {uid_of(seen.pod) for seen in pods}
            self._too_often_since = 0.0
            return None
        self._count(pods)
        hopeless = next((failure for failure in self._failed.values() if failure.cannot_run), None)
        if hopeless is None and len(self._failed) <= self._allowed:
            return None
        now = time.monotonic()
        self._too_often_since = self._too_often_since or now
        if now < self._too_often_since + _CONFIRMED_SECONDS:
            return self._too_often_since + _CONFIRMED_SECONDS
        first = hopeless or next(iter(self._failed.values()))
        limit = f"limits.restarts allows {self._allowed}" if self._allowed else "set `limits.restarts` to restart failed pods"
        raise TooManyRestarts(f"pod {first.name} {first.describe()}; {'to start it again cannot help' if hopeless else limit}")

    def _count(self, pods: list[SeenPod]) -> None:
        for seen in pods:
            failure = pod_failure(seen.pod, seen) if uid_of(seen.pod) not in self._suspended else None
            # Neither an eviction, nor a pod that was stopped because of another one, is a failure of the training.
            if failure is None or failure.disruption or not failure.is_own_failure or failure.step in names.INITIALIZERS:
                continue
            failure = failure.with_launcher_message(seen.lines_of(failure.container, failure.finished))
            self._failed.setdefault((failure.name, f"{failure.container} {failure.finished}"), failure)
