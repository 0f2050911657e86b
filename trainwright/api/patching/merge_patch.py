"""JSON merge patch (RFC 7386): what a patch says replaces, null removes, lists are replaced whole."""

from __future__ import annotations

from typing import Any


def merge(target: Any, patch: Any) -> Any:
    """`target` changed by `patch`, as a new value; neither argument is changed."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge(merged.get(key), value)
    return merged


def difference(before: Any, after: Any) -> Any:
    """The smallest merge patch that turns `before` into `after`; an empty dict when they are equal.

    Both must be objects. A value that is None in `after` counts as absent, as it does to the API.
    """
    patch: dict[str, Any] = {}
    for key in before.keys() | after.keys():
        old, new = before.get(key), after.get(key)
        if old == new:
            continue
        if isinstance(old, dict) and isinstance(new, dict):
            patch[key] = difference(old, new)
        else:
            patch[key] = new
    return patch
