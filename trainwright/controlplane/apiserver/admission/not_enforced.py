"""Says of quotas and limit ranges that they are stored and not enforced: a test of them here would pass without testing anything."""

from __future__ import annotations

from trainwright.api.kinds import LIMIT_RANGE, RESOURCE_QUOTA
from trainwright.api.objects import Obj, name_of

_KINDS = (RESOURCE_QUOTA.kind, LIMIT_RANGE.kind)


def not_enforced_warnings(new: Obj, old: Obj | None) -> list[str]:
    """Return the warning for a new object of such a kind."""
    if old is not None or new.get("kind") not in _KINDS:
        return []
    return [f"{new['kind']} {name_of(new)}: this cluster stores it, and does not enforce it"]
