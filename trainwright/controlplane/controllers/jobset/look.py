"""One look at one JobSet: its Jobs, the status being made, and the events to tell once it is stored."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from trainwright.api.conditions import condition, set_condition
from trainwright.api.objects import Obj
from trainwright.api.times import rfc3339
from trainwright.controlplane.controllers.jobset.children import Children


@dataclass
class Look:
    """`jobset["status"]` is `status`, the one being made."""

    jobset: Obj
    status: Obj
    children: Children
    now: datetime
    events: list[tuple[str, str, str]] = field(default_factory=list)

    @property
    def suspended(self) -> bool:
        return bool(self.jobset["spec"].get("suspend"))

    @property
    def replicated_jobs(self) -> list[Obj]:
        return list(self.jobset["spec"].get("replicatedJobs") or [])

    @property
    def counters(self) -> list[Obj]:
        return list(self.status.get("replicatedJobsStatus") or [])

    def set(self, kind: str, value: bool, reason: str, message: str, severity: str = "Normal") -> bool:
        """Set a condition; False is only for one that exists. Each effective change becomes an event."""
        if not value and condition(self.jobset, kind) is None:
            return False
        changed = set_condition(self.status, kind, value, reason, message, rfc3339(self.now))
        if changed:
            self.tell(severity, reason, message)
        return changed

    def tell(self, severity: str, reason: str, message: str) -> None:
        self.events.append((severity, reason, message))

    def fail(self, reason: str, message: str) -> None:
        self.set("Failed", True, reason, message, "Warning")
        self.set("RestartingJobSet", False, "JobSetFailed", "jobset failed")
        self.status["terminalState"] = "Failed"

    def complete(self) -> None:
        self.set("Completed", True, "AllJobsCompleted", "jobset completed successfully")
        self.set("RestartingJobSet", False, "JobSetCompleted", "jobset completed successfully")
        self.status["terminalState"] = "Completed"
