"""Thins a series of measured values for a chart, without losing its extremes, its ends, or where it was not finite. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from trainwright.ui.models.foreign_json import shown_text

MAX_POINTS = 2_000
MAX_SERIES = 200
_KEPT = 3
"""Points of a bucket that are kept at most: the lowest, the highest, and one that is not finite."""
_LARGEST_STEP = 2**53

Point = tuple[int, float | None]
"""A step, and the value there; None if that is not finite."""


def series_of(entries: Iterable[Mapping[str, Any]], count: str) -> dict[str, list[Point]]:
    """Return the series in the entries of a log history by name, thinned; `count` names the field with the step.

    Of several values for one step the last counts: a training that was resumed repeats some. Fields that are no numbers are left out.
    """
    found: dict[str, dict[int, float | None]] = {}
    for entry in entries:
        step = entry.get(count)
        if isinstance(step, bool) or not isinstance(step, int) or not 0 <= step < _LARGEST_STEP:
            continue
        for name, value in entry.items():
            if name == count or isinstance(value, bool) or not isinstance(value, int | float):
                continue
            if name not in found and len(found) == MAX_SERIES:
                continue
            found.setdefault(name, {})[step] = _finite(value)
    return {shown_text(name, 200): thinned(sorted(values.items())) for name, values in found.items()}


def thinned(points: Sequence[Point], limit: int = MAX_POINTS) -> list[Point]:
    """Return at most `limit` of the points, in their order: the first, the last, and of each part the extremes.

    A part with a value that is not finite keeps one of those: the chart has a gap there.
    """
    if len(points) <= limit:
        return list(points)
    kept_each = _KEPT if any(value is None for _, value in points) else _KEPT - 1
    buckets, inner = (limit - 2) // kept_each, len(points) - 2
    kept = {0, len(points) - 1}
    for bucket in range(buckets):
        start, end = 1 + bucket * inner // buckets, 1 + (bucket + 1) * inner // buckets
        kept.update(_extremes(points, start, end))
    return [points[at] for at in sorted(kept)]


def _extremes(points: Sequence[Point], start: int, end: int) -> set[int]:
    finite = [at for at in range(start, end) if points[at][1] is not None]
    gaps = [at for at in range(start, end) if points[at][1] is None]
    found = set(gaps[:1])
    if finite:
        found |= {min(finite, key=lambda at: points[at][1] or 0.0), max(finite, key=lambda at: points[at][1] or 0.0)}
    return found


def _finite(value: float) -> float | None:
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:  # an integer beyond the range of floats
        return None
