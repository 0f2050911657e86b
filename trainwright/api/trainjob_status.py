"""The status of a TrainJob from that of its JobSet: final condition, counters, suspension. Pure.

Source: Trainer 2.3 and later.
"""

from __future__ import annotations

from trainwright.api.conditions import condition, is_finished, is_true, set_condition
from trainwright.api.objects import Obj

_COUNTERS = ("name", "ready", "succeeded", "failed", "active", "suspended")


def set_suspended(job: Obj, status: Obj, now: str) -> None:
    """Set the condition from the spec; a job that was never suspended does not have it."""
    if job["spec"].get("suspend"):
        set_condition(status, "Suspended", True, "Suspended", "TrainJob is suspended", now)
    elif is_true(job, "Suspended"):
        set_condition(status, "Suspended", False, "Resumed", "TrainJob is resumed", now)


def set_from_jobset(status: Obj, jobset: Obj, now: str) -> None:
    """Copy the JobSet's final condition, with reason, message and time, and its counters."""
    for theirs, ours in (("Completed", "Complete"), ("Failed", "Failed")):
        verdict = condition(jobset, theirs)
        if verdict is not None and verdict["status"] == "True" and not is_finished({"status": status}):
            time = verdict.get("lastTransitionTime") or now
            set_condition(status, ours, True, verdict.get("reason", ""), verdict.get("message", ""), time)
    counters = (jobset.get("status") or {}).get("replicatedJobsStatus")
    if counters is not None:
        status["jobsStatus"] = [
            {field: entry.get(field, "" if field == "name" else 0) for field in _COUNTERS} for entry in counters
        ]
