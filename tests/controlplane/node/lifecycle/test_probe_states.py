"""When probes are due, and what their results mean together."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lifecycle_states import main

from trainwright.controlplane.node.lifecycle.events import probe_failed
from trainwright.controlplane.node.lifecycle.probes import (
    LIVENESS,
    READINESS,
    STARTUP,
    Health,
    Probe,
    ProbeState,
    after_result,
    due,
    first_state,
    health,
    next_time,
    probes_of,
)

START = 1000.0


def probe(kind: str = LIVENESS, **spec: Any) -> Probe:
    return Probe(kind, spec)


def after(state: ProbeState, *results: bool | None, took: float = 0.1) -> ProbeState:
    """The state after results of probes that were made when they were due."""
    for result in results:
        state = after_result(state, result, state.next_at + took)
    return state


def states(*probes: Probe, **verdicts: bool) -> dict[str, ProbeState]:
    """States of the probes of one run, with these verdicts so far."""
    return {each.kind: ProbeState(each, verdicts.get(each.kind), next_at=START) for each in probes}


def test_probes_of_a_container() -> None:
    container = {"name": "c", "readinessProbe": {"periodSeconds": 3}, "livenessProbe": {}, "startupProbe": {"exec": {}}}
    assert [(found.kind, found.period) for found in probes_of(container)] == [(STARTUP, 10), (READINESS, 3)]


@pytest.mark.parametrize(
    ("kind", "spec", "first", "again"),
    [
        (LIVENESS, {}, 0, 10),
        (LIVENESS, {"initialDelaySeconds": 4}, 4, 10),
        (LIVENESS, {"initialDelaySeconds": 60}, 60, 60),
        (STARTUP, {"periodSeconds": 3}, 0, 3),
        (READINESS, {}, 0, 0),
        (READINESS, {"initialDelaySeconds": 4}, 4, 4),
    ],
)
def test_the_first_probe_of_a_run_and_of_a_restarted_one(kind: str, spec: dict[str, Any], first: float, again: float) -> None:
    assert first_state(probe(kind, **spec), START).next_at == START + first
    assert first_state(probe(kind, **spec), START, is_restart=True).next_at == START + again


@pytest.mark.parametrize(
    ("took", "following"),
    [(0.1, 10), (9.9, 10), (10.1, 20), (35.0, 40)],
    ids=["quick", "slow", "longer than a period", "much longer"],
)
def test_probes_follow_a_ticker_however_long_they_take(took: float, following: float) -> None:
    state = first_state(probe(), START)
    assert after(state, True, took=took).next_at == START + following
    assert after(state, None, took=took).next_at == START + following, "an error of the prober takes its turn too"


def test_a_clock_that_jumped_back_does_not_put_the_next_one_off() -> None:
    assert after_result(first_state(probe(), START), True, START - 3600).next_at == START - 3590


@pytest.mark.parametrize(
    ("results", "verdict"),
    [
        ([], None),
        ([True], True),
        ([False], None),
        ([False, False], None),
        ([False, False, False], False),
        ([False, False, True, False, False], True),
        ([False, None, False, None, False], False),
        ([None, None, None], None),
        ([True, False, False], True),
        ([True, False, False, False], False),
        ([False, False, False, True], True),
    ],
)
def test_a_verdict_needs_as_many_results_in_a_row(results: list[bool | None], verdict: bool | None) -> None:
    assert after(first_state(probe(), START), *results).verdict is verdict


@pytest.mark.parametrize(
    ("results", "verdict"),
    [([True], None), ([True, True], True), ([True, False, True], False), ([False, True], False), ([False, True, True], True)],
)
def test_readiness_may_need_several_successes(results: list[bool], verdict: bool | None) -> None:
    state = first_state(probe(READINESS, successThreshold=2, failureThreshold=1), START)
    assert after(state, *results).verdict is verdict


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ({}, Health(True, True)),
        (states(probe(LIVENESS)), Health(True, True)),
        (states(probe(LIVENESS), liveness=True), Health(True, True)),
        (states(probe(LIVENESS), liveness=False), Health(True, True, "liveness")),
        (states(probe(READINESS)), Health(True, False)),
        (states(probe(READINESS), readiness=False), Health(True, False)),
        (states(probe(READINESS), readiness=True), Health(True, True)),
        (states(probe(STARTUP)), Health(False, False)),
        (states(probe(STARTUP), startup=True), Health(True, True)),
        (states(probe(STARTUP), startup=False), Health(False, False, "startup")),
        (states(probe(STARTUP), probe(READINESS), startup=True), Health(True, False)),
        (states(probe(STARTUP), probe(READINESS), startup=True, readiness=True), Health(True, True)),
    ],
)
def test_health_combines_the_results_of_all_probes(found: dict[str, ProbeState], expected: Health) -> None:
    assert health(found) == expected


ALL = (probe(STARTUP), probe(LIVENESS), probe(READINESS))


@pytest.mark.parametrize(
    ("found", "kinds"),
    [
        (states(*ALL), [STARTUP]),
        (states(*ALL, startup=True), [LIVENESS, READINESS]),
        (states(*ALL, startup=False), []),
        (states(*ALL, startup=True, liveness=False), []),
        (states(*ALL, startup=True, liveness=True, readiness=False), [LIVENESS, READINESS]),
        (states(probe(READINESS)), [READINESS]),
        ({}, []),
    ],
)
def test_who_is_probed(found: dict[str, ProbeState], kinds: list[str]) -> None:
    assert [each.kind for each in due(found, START)] == kinds
    assert due(found, START - 0.1) == []
    assert next_time(found) == (START if kinds else None)


def test_a_startup_probe_that_passes_late_lets_the_others_begin_at_once_and_then_in_step() -> None:
    found = states(probe(STARTUP, periodSeconds=1), probe(LIVENESS))
    found[STARTUP] = after_result(found[STARTUP], True, START + 34)
    assert [each.kind for each in due(found, START + 34)] == [LIVENESS]
    assert after_result(found[LIVENESS], True, START + 34.2).next_at == START + 40


@given(
    results=st.lists(st.sampled_from([True, False, None]), max_size=12),
    failures=st.integers(1, 4),
    successes=st.integers(1, 3),
    took=st.floats(0, 25),
)
def test_property_the_last_row_that_was_long_enough_is_the_verdict(
    results: list[bool | None], failures: int, successes: int, took: float
) -> None:
    state = after(first_state(probe(failureThreshold=failures, successThreshold=successes), START), *results, took=took)
    told = [result for result in results if result is not None]
    verdict, row = None, 0
    for position, result in enumerate(told):
        row = row + 1 if position and told[position - 1] is result else 1
        verdict = result if row >= (successes if result else failures) else verdict
    assert state.verdict is verdict
    assert (state.next_at - START) % 10 == pytest.approx(0, abs=1e-6)


def test_events_tell_a_probe_that_failed_from_one_that_could_not_be_made() -> None:
    assert probe_failed(main(), READINESS, "cat: x\n", is_error=False).message == "Readiness probe failed: cat: x\n"
    could_not = probe_failed(main(), STARTUP, "rpc error", is_error=True)
    assert could_not.message == "Startup probe errored and resulted in unknown state: rpc error"
    assert (could_not.kind, could_not.reason, could_not.path) == ("Warning", "Unhealthy", "spec.containers{m}")
