"""JSON merge patch (RFC 7386): values replace, null removes, lists are replaced as a whole."""

from __future__ import annotations

from typing import Any


def merge(target: Any, patch: Any) -> Any:
    """Return a new value: `target` with `patch` applied; neither argument is changed."""
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
    """Return the smallest merge patch from `before` to `after`; an empty dict if they are equal.

    Both must be objects. None in `after` means absent, as in the API.
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
