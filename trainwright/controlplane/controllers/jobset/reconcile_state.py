"""The state of one reconcile of a JobSet: its Jobs, the new status, and the Events to record after the status is written."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from trainwright.api.conditions import condition, set_condition
from trainwright.api.objects import Obj
from trainwright.api.times import rfc3339
from trainwright.controlplane.controllers.jobset.children import Children


@dataclass
class ReconcileState:
    """`status` is the new status; `jobset["status"]` is the same object."""

    jobset: Obj
    status: Obj
    children: Children
    now: datetime
    events: list[tuple[str, str, str]] = field(default_factory=list)

    @property
    def is_suspended(self) -> bool:
        return bool(self.jobset["spec"].get("suspend"))

    @property
    def replicated_jobs(self) -> list[Obj]:
        return list(self.jobset["spec"].get("replicatedJobs") or [])

    @property
    def counters(self) -> list[Obj]:
        return list(self.status.get("replicatedJobsStatus") or [])

    def update_condition(self, kind: str, value: bool, reason: str, message: str, severity: str = "Normal") -> bool:
        """Set a condition; a missing one is not set to False. Adds an Event if it changes. Returns whether it changed."""
        if not value and condition(self.jobset, kind) is None:
            return False
        changed = set_condition(self.status, kind, value, reason, message, rfc3339(self.now))
        if changed:
            self.add_event(severity, reason, message)
        return changed

    def add_event(self, severity: str, reason: str, message: str) -> None:
        self.events.append((severity, reason, message))

    def fail(self, reason: str, message: str) -> None:
        self.update_condition("Failed", True, reason, message, "Warning")
        self.update_condition("RestartingJobSet", False, "JobSetFailed", "jobset failed")
        self.status["terminalState"] = "Failed"

    def complete(self) -> None:
        self.update_condition("Completed", True, "AllJobsCompleted", "jobset completed successfully")
        self.update_condition("RestartingJobSet", False, "JobSetCompleted", "jobset completed successfully")
        self.status["terminalState"] = "Completed"
