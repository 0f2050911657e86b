"""Conditions (metav1.Condition) of TrainJobs, JobSets and Jobs, and the status of a TrainJob from that of its JobSet. Pure.

Source of the status: Trainer 2.3 and later.
"""

from __future__ import annotations

from trainwright.api.objects import Obj

_COUNTERS = ("name", "ready", "succeeded", "failed", "active", "suspended")


def condition(obj: Obj, kind: str) -> Obj | None:
    """Return the condition of that type in the object's status, or None."""
    for entry in (obj.get("status") or {}).get("conditions") or []:
        if entry.get("type") == kind:
            found: Obj = entry
            return found
    return None


def is_true(obj: Obj, kind: str) -> bool:
    entry = condition(obj, kind)
    return entry is not None and entry.get("status") == "True"


def is_finished(obj: Obj) -> bool:
    """Whether a TrainJob, Job (`Complete`) or JobSet (`Completed`) has succeeded or failed."""
    return any(is_true(obj, kind) for kind in ("Complete", "Completed", "Failed"))


def set_condition(status: Obj, kind: str, value: bool, reason: str, message: str, now: str) -> bool:
    """Set a condition in `status`; the transition time changes only with the value.

    Returns whether anything changed. An existing condition keeps its position in the list.
    """
    conditions = status.setdefault("conditions", [])
    text = "True" if value else "False"
    for entry in conditions:
        if entry.get("type") != kind:
            continue
        if (entry.get("status"), entry.get("reason"), entry.get("message")) == (text, reason, message):
            return False
        if entry.get("status") != text:
            entry["lastTransitionTime"] = now
        entry.update(status=text, reason=reason, message=message)
        return True
    conditions.append({"type": kind, "status": text, "reason": reason, "message": message, "lastTransitionTime": now})
    return True


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
