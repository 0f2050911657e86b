"""Says of quotas, limit ranges and pod groups that they are stored and not enforced: a test of them here would test nothing."""

from __future__ import annotations

from trainwright.api.kinds import COSCHEDULING_GROUP, LIMIT_RANGE, RESOURCE_QUOTA
from trainwright.api.objects import Obj, controller_of, name_of

_KINDS = (RESOURCE_QUOTA.kind, LIMIT_RANGE.kind, COSCHEDULING_GROUP.kind)


def not_enforced_warnings(new: Obj, old: Obj | None) -> list[str]:
    """Return the warning for a new object of such a kind. Not for a TrainJob's PodGroup: its pods are placed together anyway."""
    if old is not None or new.get("kind") not in _KINDS or controller_of(new) is not None:
        return []
    return [f"{new['kind']} {name_of(new)}: this cluster stores it, and does not enforce it"]
