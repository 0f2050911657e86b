"""How long a container waits for its restart: the kubelet's back-off, and the numbers that it prints."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lifecycle_states import NOW, ended, main

from trainwright.controlplane.node.lifecycle.container_state import Run, Termination
from trainwright.controlplane.node.lifecycle.restarts import go_duration, is_backing_off, next_backoff, restart_at


def crashes(count: int, seconds: float = 1.0) -> list[float]:
    """The waits of a container that ends `count` times, each time after that many seconds."""
    waits, now, backoff = [], NOW, 0.0
    for attempt in range(count):
        run = Run(attempt, f"process://u/m/{attempt}", now, Termination(1, now + seconds, now), backoff)
        container = main(run)
        waits.append(restart_at(container) - (now + seconds))
        now, backoff = restart_at(container), next_backoff(container)
    return waits


def test_the_wait_doubles_from_ten_seconds_to_five_minutes() -> None:
    assert crashes(9) == [0, 10, 20, 40, 80, 160, 300, 300, 300]


@pytest.mark.parametrize(("seconds", "third"), [(599.0, 20), (600.0, 20), (600.1, 0)])
def test_a_run_of_ten_minutes_makes_it_forget(seconds: float, third: float) -> None:
    assert crashes(3, seconds)[2] == third


def test_a_clock_that_jumped_back_does_not_hold_it_up() -> None:
    assert is_backing_off(main(ended(1, 1, 10.0)), NOW - 5)
    assert not is_backing_off(main(ended(1, 1, 10.0)), NOW - 3600)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (10, "10s"), (60, "1m0s"), (80, "1m20s"), (160, "2m40s"), (300, "5m0s"), (3600, "1h0m0s"), (3661, "1h1m1s")],
)
def test_durations_as_go_prints_them(seconds: float, text: str) -> None:
    assert go_duration(seconds) == text


@given(runs=st.lists(st.floats(0.1, 2000), min_size=1, max_size=12), code=st.integers(0, 255))
def test_property_waits_are_of_the_series_and_only_a_long_run_shortens_them(runs: list[float], code: int) -> None:
    now, backoff, before = NOW, 0.0, 0.0
    for attempt, seconds in enumerate(runs):
        run = Run(attempt, f"process://u/m/{attempt}", now, Termination(code, now + seconds, now), backoff)
        wait = restart_at(main(run)) - (now + seconds)
        assert wait == pytest.approx(min((0, 10, 20, 40, 80, 160, 300), key=lambda step: abs(step - wait)), abs=1e-3)
        ran = run.ended.finished_at - now if run.ended else 0.0  # as exact as the clock is
        assert wait > before or wait >= 299 or ran > 600 or attempt == 0
        now, backoff, before = restart_at(main(run)), next_backoff(main(run)), 0.0 if ran > 600 else wait
