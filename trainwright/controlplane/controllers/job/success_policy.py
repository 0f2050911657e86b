"""Evaluates a Job's successPolicy: it succeeds before all indexes have completed if one rule is met."""

from __future__ import annotations

from trainwright.api.integers import parse_indexes
from trainwright.api.objects import Obj


def met_success_rule(spec: Obj, completed: set[int]) -> int | None:
    """Return the index of the first rule that the completed indexes meet, or None."""
    if completed:
        for number, rule in enumerate((spec.get("successPolicy") or {}).get("rules") or []):
            if _is_met(rule, completed, int(spec["completions"])):
                return number
    return None


def _is_met(rule: Obj, completed: set[int], completions: int) -> bool:
    count, text = rule.get("succeededCount"), rule.get("succeededIndexes")
    if text is None:
        return count is not None and len(completed) >= int(count)
    listed = parse_indexes(text, completions)
    return listed <= completed or (count is not None and len(listed & completed) >= int(count))
