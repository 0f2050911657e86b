"""When a finished object that names a time to live may be deleted."""

from __future__ import annotations

from datetime import datetime

from trainwright.api.conditions import condition
from trainwright.api.objects import Obj
from trainwright.api.times import seconds_between

_ENDS = ("Complete", "Completed", "Failed")


def seconds_to_expiry(obj: Obj, now: datetime) -> float | None:
    """What is left of `ttlSecondsAfterFinished`, counted from the condition that ended the object; None for ever."""
    ttl = obj["spec"].get("ttlSecondsAfterFinished")
    ended = [entry for kind in _ENDS if (entry := condition(obj, kind)) is not None and entry["status"] == "True"]
    if ttl is None or not ended:
        return None
    return float(ttl - seconds_between(ended[0]["lastTransitionTime"], now))
