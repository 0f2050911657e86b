"""Series for charts: thinned without losing extremes, and free of what is no number."""

from __future__ import annotations

import json
import math

from hypothesis import given
from hypothesis import strategies as st

from trainwright.ui.models.history import MAX_SERIES, Point, series_of, thinned

VALUES = st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False))
POINTS = st.lists(VALUES, max_size=400).map(lambda values: list(enumerate(values)))


@given(POINTS, st.integers(min_value=8, max_value=60))
def test_thinned_keeps_ends_and_extremes_within_the_limit(points: list[Point], limit: int) -> None:
    kept = thinned(points, limit)
    assert len(kept) <= max(limit, 0) or len(points) <= limit
    assert set(kept) <= set(points)
    assert kept == sorted(kept, key=lambda point: point[0])
    if not points:
        return
    assert kept[0] == points[0]
    assert kept[-1] == points[-1]
    finite = [value for _, value in points if value is not None]
    left = [value for _, value in kept if value is not None]
    if finite:
        assert (min(left), max(left)) == (min(finite), max(finite))
    assert (None in [value for _, value in points]) == (None in [value for _, value in kept])


def test_a_single_spike_among_many_points_is_kept() -> None:
    points: list[Point] = [(step, 1.0) for step in range(100_000)]
    points[54_321] = (54_321, 900.0)
    points[60_000] = (60_000, None)
    kept = thinned(points)
    assert len(kept) <= 2_000
    assert (54_321, 900.0) in kept
    assert (60_000, None) in kept


def test_values_that_are_not_finite_are_null() -> None:
    entries = [
        {"step": 1, "loss": 2.0},
        {"step": 2, "loss": math.nan},
        {"step": 3, "loss": -math.inf},
        {"step": 4, "loss": 10**400},
    ]
    assert series_of(entries, "step") == {"loss": [(1, 2.0), (2, None), (3, None), (4, None)]}


def test_the_last_value_of_a_repeated_step_counts() -> None:
    entries = [{"step": 1, "loss": 3.0}, {"step": 2, "loss": 2.0}, {"step": 1, "loss": 1.0}]
    assert series_of(entries, "step") == {"loss": [(1, 1.0), (2, 2.0)]}


def test_invalid_steps_and_numbers_are_left_out() -> None:
    entries = [
        {"step": "1", "loss": 1},
        {"step": True, "loss": 1},
        {"step": -1, "loss": 1},
        {"loss": 1},
        {"step": 1, "x": "a", "y": True, "z": [1]},
    ]
    assert series_of(entries, "step") == {}


def test_the_number_of_series_is_bounded() -> None:
    entries = [{"step": 1, **{f"metric {number}": 1.0 for number in range(5_000)}}]
    assert len(series_of(entries, "step")) == MAX_SERIES


def test_hostile_names_are_texts_that_can_be_sent() -> None:
    found = series_of([{"step": 1, "<img src=x>\ud800" + "x" * 9_000: 1.0}], "step")
    (name,) = found
    assert len(name) <= 200
    json.dumps(name).encode()
    assert name.encode("utf-8")
