"""Computes when a finished object with `ttlSecondsAfterFinished` may be deleted."""

from __future__ import annotations

from datetime import datetime

from trainwright.api.conditions import condition
from trainwright.api.objects import Obj
from trainwright.api.times import seconds_between

_FINISHED_CONDITIONS = ("Complete", "Completed", "Failed")


def seconds_to_expiry(obj: Obj, now: datetime) -> float | None:
    """Return the remaining `ttlSecondsAfterFinished`, counted from the finished condition; None if it never expires."""
    ttl = obj["spec"].get("ttlSecondsAfterFinished")
    ended = [entry for kind in _FINISHED_CONDITIONS if (entry := condition(obj, kind)) is not None and entry["status"] == "True"]
    if ttl is None or not ended:
        return None  # kept until somebody deletes it, or still running
    return float(ttl - seconds_between(ended[0]["lastTransitionTime"], now))
