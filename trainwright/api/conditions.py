"""Conditions (metav1.Condition) of TrainJobs, JobSets and Jobs: reading and setting them."""

from __future__ import annotations

from trainwright.api.objects import Obj


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
