"""Plans of sweeps depend on their inputs alone, have no trial twice, and the best is picked of what was reported."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.jobs.diagnosis.errors import DeadlineExceeded, Diverged, QueueTimeout, RunTimeout, StepFailed
from trainwright.jobs.state.progress import Divergence
from trainwright.jobs.wait.run_step import StepResult
from trainwright.steps.training.trials import (
    MOST_TRIALS,
    NoTrialSucceeded,
    Trial,
    TrialOutcome,
    plan_trials,
    rank_trials,
    run_trial,
    trial_rows,
)

JOB = {"metadata": {"name": "run-1234", "namespace": "default"}}
VALUES = st.dictionaries(
    st.sampled_from(["a", "b", "c"]), st.lists(st.integers(0, 9), min_size=1, max_size=4, unique=True), min_size=1
)


def settings_of(trials: list[Trial]) -> list[dict[str, Any]]:
    return [trial.settings for trial in trials]


def test_trials_have_the_common_settings_and_their_own() -> None:
    planned = plan_trials({"epochs": 2, "seed": 1}, trials=[{"seed": 2}, {"learning_rate": 0.1}])
    assert [trial.index for trial in planned] == [0, 1]
    assert settings_of(planned) == [{"epochs": 2, "seed": 2}, {"epochs": 2, "seed": 1, "learning_rate": 0.1}]


def test_all_combinations_vary_the_last_setting_fastest() -> None:
    planned = plan_trials({}, space={"a": [1, 2], "b": ["x", "y"]})
    expected = [{"a": 1, "b": "x"}, {"a": 1, "b": "y"}, {"a": 2, "b": "x"}, {"a": 2, "b": "y"}]
    assert settings_of(planned) == expected


@given(VALUES, st.integers(1, 20), st.integers(0, 5))
def test_a_plan_is_the_same_each_time_and_has_no_trial_twice(space: dict[str, list[int]], most: int, seed: int) -> None:
    planned = plan_trials({}, space=space, max_trials=most, seed=seed)
    assert planned == plan_trials({}, space=space, max_trials=most, seed=seed)
    found = settings_of(planned)
    assert 1 <= len(found) <= most
    assert all(one not in found[:position] for position, one in enumerate(found))
    assert all(value in space[name] for one in found for name, value in one.items())


@given(st.integers(0, 1000), st.booleans(), st.floats(1e-6, 1e-2), st.floats(2.0, 1000.0))
def test_numbers_are_drawn_from_their_range(seed: int, log: bool, low: float, factor: float) -> None:
    space = {"rate": {"min": low, "max": low * factor, "log": log}, "rank": {"min": 4, "max": 64, "log": log}}
    for one in settings_of(plan_trials({}, space=space, max_trials=5, seed=seed)):
        assert low * 0.9999 <= one["rate"] <= low * factor * 1.0001
        assert isinstance(one["rank"], int)
        assert 4 <= one["rank"] <= 64


def test_another_seed_draws_others() -> None:
    space = {"rate": {"min": 1e-5, "max": 1e-3, "log": True}}
    assert plan_trials({}, space=space, max_trials=3, seed=1) != plan_trials({}, space=space, max_trials=3, seed=2)


@pytest.mark.parametrize(
    ("given_settings", "message"),
    [
        ({}, "set either trials"),
        ({"trials": [{}], "space": {"a": [1]}}, "set either trials"),
        ({"trials": [{"a": 1}, {"a": 1}]}, r"trials\[1\]: the same settings as trials\[0\]"),
        ({"trials": ["a"]}, r"trials\[0\]: 'a' is not an object"),
        ({"space": {"a": []}}, "space.a: expected a list"),
        ({"space": {"a": [0.1, 0.2, 0.1]}}, r"space\.a: 0\.1 is there twice"),
        ({"space": {"a": {"min": 1, "max": 1}}, "max_trials": 2}, "min must be less than max"),
        ({"space": {"a": {"min": 0, "max": 1, "log": True}}, "max_trials": 2}, "with log greater than zero"),
        ({"space": {"a": {"min": 0, "max": 1}, "b": [1]}}, r"max_trials: required with a range \(a\)"),
        ({"space": {"a": list(range(30)), "b": list(range(30))}}, f"at most {MOST_TRIALS}"),
        ({"trials": [{"a": 1}], "max_trials": -1}, "must not be negative"),
    ],
)
def test_a_plan_that_cannot_be_meant_is_refused(given_settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plan_trials({}, **given_settings)


def test_held_out_rows_are_evaluated_for_a_metric_of_them() -> None:
    assert settings_of(plan_trials({}, trials=[{"a": 1}], metric="eval_loss")) == [{"eval_strategy": "epoch", "a": 1}]
    chosen = plan_trials({"eval_strategy": "steps"}, trials=[{"a": 1}], metric="eval_loss")
    assert settings_of(chosen) == [{"eval_strategy": "steps", "a": 1}]
    assert settings_of(plan_trials({}, trials=[{"a": 1}], metric="loss")) == [{"a": 1}]


def test_a_trial_survives_its_text() -> None:
    trial = Trial(index=3, settings={"extra": ["--ü", "x"], "rate": 1e-05})
    assert Trial.parse(trial.model_dump_json()) == trial
    with pytest.raises(ValueError, match="trial: expected one of the trials that plan_trials returns"):
        Trial.parse('{"index": -1}')


def test_the_outcome_has_the_numbers_that_were_reported() -> None:
    result = StepResult("run-1234", "default", {"eval_loss": "0.25", "note": "x", "bad": "nan"}, {"accuracy": 0.5, "done": True})
    outcome, same = run_trial(Trial(index=2, settings={"a": 1}), lambda: result)
    assert same is result
    assert outcome == TrialOutcome(index=2, settings={"a": 1}, trainjob="run-1234", metrics={"eval_loss": 0.25, "accuracy": 0.5})


@pytest.mark.parametrize(
    "error",
    [
        StepFailed("exited 1", JOB),
        DeadlineExceeded("too long", JOB),
        RunTimeout("too long", "run"),
        Diverged(JOB, Divergence("loss", "nan", "step 2", 3)),
    ],
)
def test_a_training_that_fails_is_an_outcome(error: Exception) -> None:
    def fail() -> StepResult:
        raise error

    outcome, _ = run_trial(Trial(index=0), fail)
    assert outcome.error == str(error)
    assert outcome.trainjob == ("" if type(error) is RunTimeout else "run-1234")
    with pytest.raises(type(error)):
        run_trial(Trial(index=0), fail, fails=True)


def test_an_error_in_which_the_trial_has_no_part_is_raised() -> None:
    def fail() -> StepResult:
        raise QueueTimeout("queued for too long", "queue")

    with pytest.raises(QueueTimeout):
        run_trial(Trial(index=0), fail)


def outcome(index: int, **more: Any) -> TrialOutcome:
    return TrialOutcome(index=index, settings={"n": index}, trainjob=f"job-{index}", **more)


def test_the_best_comes_first_and_of_equals_the_first_planned() -> None:
    found = [outcome(0, metrics={"loss": 2}), outcome(1, metrics={"loss": 1}), outcome(2, metrics={"loss": 1})]
    assert [one.index for one in rank_trials(found, "loss")] == [1, 2, 0]
    assert [one.index for one in rank_trials(found, "loss", greater_is_better=True)] == [0, 1, 2]


def test_failed_trials_are_listed_last() -> None:
    found = [outcome(0, error="out of memory\nmore"), outcome(1, metrics={"loss": 1.5}), outcome(2, metrics={"other": 1})]
    assert trial_rows(found, rank_trials(found, "loss"), "loss") == [
        ("1", "1", "job-1", "1.5", "n=1"),
        ("", "0", "job-0", "out of memory", "n=0"),
        ("", "2", "job-2", "not reported", "n=2"),
    ]


def test_a_sweep_without_a_comparable_trial_says_what_was_reported() -> None:
    with pytest.raises(NoTrialSucceeded, match=r"1 of 2 trials failed, and none reported 'loss'; reported was: f1; .* exploded"):
        rank_trials([outcome(0, error="exploded"), outcome(1, metrics={"f1": 1})], "loss")
