"""Median stopping: which trial is hopeless, and what becomes of its job and of those who wait for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from factories import train_request
from hypothesis import given
from hypothesis import strategies as st

from trainwright.api import names
from trainwright.api.errors import Forbidden, ServiceUnavailable
from trainwright.api.kinds import JOBSET, TRAINJOB
from trainwright.api.objects import annotations_of
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.jobs import Identity, Phase, Submission, Waiting, submit_or_adopt, wait_for
from trainwright.jobs.diagnosis.errors import StoppedEarly
from trainwright.jobs.diagnosis.exit_codes import is_permanent
from trainwright.jobs.state.progress import Progress
from trainwright.jobs.wait.give_up import stop_early
from trainwright.jobs.wait.resume_job import ResumeOutcome, resume_job
from trainwright.jobs.wait.run_step import run_to_end
from trainwright.steps.training.early_stop import (
    MedianStop,
    SweepMonitor,
    TrialReports,
    stop_hopeless_trials,
    trials_of_run,
    why_hopeless,
)
from trainwright.steps.training.trials import Trial, run_trial
from trainwright.submission.jobset_mode import JobSetCluster
from trainwright.submission.suspension import early_stop_reason

RULE = MedianStop("loss", min_trials=2, start_step=2)
VALUES = st.floats(-100, 100, allow_nan=False)
CURVES = st.lists(st.lists(VALUES, min_size=1, max_size=8), min_size=2, max_size=6)
REQUEST = train_request(runtime="torch-distributed", command=["true"])


def reports(*values: float, succeeded: bool = False, at: float | None = None) -> TrialReports:
    """One value at each step from 1."""
    found = [(float(step), value) for step, value in enumerate(values, start=1)]
    return TrialReports(found, at if at is not None else float(len(values)), succeeded)


@pytest.mark.parametrize(
    ("trial", "others", "is_hopeless"),
    [
        (reports(9, 9), [reports(5, 1), reports(6, 4)], True),
        (reports(9, 2), [reports(5, 1), reports(6, 4)], False),
        (reports(9, 4), [reports(5, 3), reports(6, 2)], False),  # equal to the median is not worse
        (reports(9), [reports(5, 1), reports(6, 4)], False),  # too early
        (reports(9, 9), [reports(5, 1)], False),  # too few others
        (reports(9, 9), [reports(5), reports(6, 4)], False),  # one has not come as far
        (reports(9, 9, 9), [reports(5, succeeded=True), reports(6, 4, 3)], True),  # it has ended, with few reports
        (reports(9, 9), [reports(8, 8, 0, 0), reports(9.5, 9, 0, 0)], True),
        (reports(8, 8), [reports(9, 9, 0, 0), reports(9, 9, 0, 0)], False),  # later values do not count
        (reports(9, 9), [TrialReports([(5.0, 1.0)], 5.0), reports(1, 1)], False),  # nothing known so early
    ],
)
def test_the_rule(trial: TrialReports, others: list[TrialReports], is_hopeless: bool) -> None:
    reason = why_hopeless(trial, others, RULE)
    assert bool(reason) is is_hopeless
    negated = [
        TrialReports([(at, -value) for at, value in one.values], one.reached, one.has_succeeded) for one in (trial, *others)
    ]
    mirrored = MedianStop("loss", greater_is_better=True, min_trials=2, start_step=2)
    assert bool(why_hopeless(negated[0], negated[1:], mirrored)) is is_hopeless


def test_the_reason_has_the_numbers() -> None:
    assert why_hopeless(reports(9, 8), [reports(4, 2), reports(3, 1)], RULE) == (
        "its best loss after 2 reports is 8, worse than 2.5, the median of the averages of 2 other trials"
    )


@pytest.mark.medium
@given(CURVES, st.booleans(), st.integers(1, 4), st.integers(1, 4), st.randoms())
def test_the_best_trial_is_never_hopeless_and_the_order_does_not_matter(
    curves: list[list[float]], greater: bool, min_trials: int, start_step: int, chance: Any
) -> None:
    rule = MedianStop("loss", greater, min_trials, start_step)
    trials = [reports(*curve) for curve in curves]

    def verdict(trial: TrialReports) -> str:
        others = [one for one in trials if one is not trial]
        chance.shuffle(others)
        return why_hopeless(trial, others, rule)

    verdicts = [verdict(trial) for trial in trials]
    assert verdicts == [verdict(trial) for trial in trials]
    best = (max if greater else min)(value for curve in curves for value in curve)
    for curve, found in zip(curves, verdicts, strict=True):
        as_far = [one for one in curves if len(one) >= len(curve)]
        if best in curve or len(curve) < start_step or len(as_far) <= min_trials:
            assert not found


@pytest.mark.parametrize(("field", "value"), [("metric", ""), ("min_trials", 0), ("start_step", 0)])
def test_a_rule_that_cannot_be_meant_is_refused(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=field):
        MedianStop(**{"metric": "loss", field: value})


def test_progress_is_the_percentage_else_the_step_else_the_number_of_the_report() -> None:
    def seen(*reported: tuple[int | None, dict[str, str]]) -> list[tuple[float, float]]:
        trial = TrialReports()
        for percent, metrics in reported:
            trial.observe(Progress(Phase.Running, percent, None, tuple(metrics.items())), "loss")
        return trial.values

    assert seen((10, {"loss": "3", "step": "7"}), (20, {"loss": "2"})) == [(10, 3), (20, 2)]
    assert seen((None, {"loss": "3", "step": "7"}), (None, {"loss": "2", "step": "9"})) == [(7, 3), (9, 2)]
    assert seen((None, {"loss": "3"}), (None, {"loss": "3"}), (None, {"loss": "2"})) == [(1, 3), (2, 2)]
    assert seen((10, {"loss": "nan"}), (20, {"other": "1"}), (30, {"loss": "x"})) == []
    after_a_restart = seen((10, {"loss": "3"}), (20, {"loss": "2"}), (10, {"loss": "2.5"}), (20, {"loss": "2"}))
    assert after_a_restart == [(10, 2.5), (20, 2)]


def submit(cluster: EmbeddedCluster, index: int, step: str = "train") -> dict[str, Any]:
    return submit_or_adopt(Submission(cluster, REQUEST, Identity("airflow/d", "r", step, index), "default")).trainjob


def report(set_status: Callable[..., Any], job: dict[str, Any], percent: int, loss: float, *conditions: str) -> None:
    metrics = [{"name": "loss", "value": str(loss)}]
    status = {"lastUpdatedTime": f"2026-01-01T00:00:{percent % 60:02}Z", "progressPercentage": percent, "metrics": metrics}
    set_status(job, *conditions, trainerStatus=status)


def current(cluster: EmbeddedCluster, job: dict[str, Any]) -> dict[str, Any]:
    return cluster.get(TRAINJOB, job["metadata"]["name"], "default")


def of_run(cluster: EmbeddedCluster) -> Any:
    return lambda: trials_of_run(cluster, owner="airflow/d", run="r", step="train", namespace="default")


def test_the_trials_of_a_run_are_the_latest_job_of_each(cluster: EmbeddedCluster, set_status: Callable[..., Any]) -> None:
    set_status(submit(cluster, 0), "Failed")
    again, second, cleared = submit(cluster, 0), submit(cluster, 1), submit(cluster, 1, "train@2")
    submit(cluster, 2, "other")
    submit_or_adopt(Submission(cluster, REQUEST, Identity("airflow/other", "r", "train", 3), "default"))
    submit_or_adopt(Submission(cluster, REQUEST, Identity("airflow/d", "r", "train"), "default"))
    assert second["metadata"]["name"] != cleared["metadata"]["name"]
    found = of_run(cluster)()
    assert {index: job.trainjob["metadata"]["name"] for index, job in found.items()} == {
        0: again["metadata"]["name"],
        1: cleared["metadata"]["name"],
    }


def test_a_hopeless_trial_is_stopped_while_the_others_train(cluster: EmbeddedCluster, set_status: Callable[..., Any]) -> None:
    jobs = [submit(cluster, index) for index in range(3)]
    curves = [(3.0, 2.0, 1.0), (3.0, 2.5, 2.0), (9.0, 9.5, 9.9)]
    looks = 0

    def next_report(_seconds: float) -> None:
        nonlocal looks
        for job, curve in zip(jobs, curves, strict=True):
            if not current(cluster, job)["spec"].get("suspend"):
                report(set_status, job, 10 * (looks + 1), curve[looks])
        looks += 1

    stopped = stop_hopeless_trials(of_run(cluster), RULE, have_ended=lambda: looks == 3, pause=next_report, idle_seconds=60)
    assert [(one.index, one.trainjob) for one in stopped] == [(2, jobs[2]["metadata"]["name"])]
    hopeless, good = current(cluster, jobs[2]), current(cluster, jobs[0])
    assert annotations_of(hopeless)[names.STOPPED_EARLY_ANNOTATION] == stopped[0].reason
    assert hopeless["spec"]["suspend"] is True
    assert not good["spec"].get("suspend")


def test_ended_and_stopped_jobs_are_no_longer_waited_for(cluster: EmbeddedCluster, set_status: Callable[..., Any]) -> None:
    monitor, jobs = SweepMonitor(RULE), [submit(cluster, index) for index in range(3)]
    assert monitor.observe(of_run(cluster)()) == 3
    report(set_status, jobs[0], 100, 1.0, "Complete")
    stop_early(cluster, jobs[1], "because")
    assert monitor.observe(of_run(cluster)()) == 1


def test_a_trial_that_failed_is_no_measure(cluster: EmbeddedCluster, set_status: Callable[..., Any]) -> None:
    monitor, jobs = SweepMonitor(MedianStop("loss", min_trials=2, start_step=1)), [submit(cluster, index) for index in range(3)]
    report(set_status, jobs[0], 50, 0.0, "Failed")
    report(set_status, jobs[1], 50, 1.0)
    report(set_status, jobs[2], 50, 9.0)
    assert monitor.observe(of_run(cluster)()) == 2
    assert monitor.stopped == []


def test_watching_ends_when_idle_and_outlasts_an_api_outage(cluster: EmbeddedCluster) -> None:
    answers: list[Any] = [ServiceUnavailable("down"), {}]

    def read() -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    pauses: list[float] = []
    ended = stop_hopeless_trials(read, RULE, have_ended=lambda: not answers, pause=pauses.append, poll_seconds=3, idle_seconds=60)
    assert (ended, pauses) == ([], [3, 3])
    assert stop_hopeless_trials(dict, RULE, have_ended=lambda: False, pause=pauses.append, idle_seconds=0) == []
    answers[:] = [Forbidden("no")]
    with pytest.raises(Forbidden):
        stop_hopeless_trials(read, RULE, have_ended=lambda: False)


def test_whoever_waits_ends_at_once_and_a_retry_does_not_resume_it(
    cluster: EmbeddedCluster, set_status: Callable[..., Any]
) -> None:
    job = submit(cluster, 0)
    assert stop_early(cluster, job, "too bad")
    assert not stop_early(cluster, job, "again")
    message = f"TrainJob default/{job['metadata']['name']} was stopped early: too bad"
    with pytest.raises(StoppedEarly) as stopped:
        wait_for(cluster, job)
    assert str(stopped.value) == message
    assert is_permanent(stopped.value)
    touched: list[str] = []

    def cancel(*_: Any) -> str:
        touched.append("cancelled")
        return ""

    with pytest.raises(StoppedEarly):
        run_to_end(
            Submission(cluster, REQUEST, Identity("airflow/d", "r", "train", 0), "default"),
            Waiting(on_signal=cancel, on_error=cancel),
        )
    assert touched == []
    assert early_stop_reason(current(cluster, job)) == "too bad"
    outcome, _ = run_trial(Trial(index=0), lambda: wait_for(cluster, job))  # type: ignore[arg-type,return-value]
    assert (outcome.trainjob, outcome.error) == (job["metadata"]["name"], message)


def test_early_stop_works_in_jobset_mode(cluster: EmbeddedCluster) -> None:
    jobsets = JobSetCluster(cluster)
    job = submit_or_adopt(Submission(jobsets, REQUEST, Identity("airflow/d", "r", "train", 0), "default")).trainjob
    assert stop_early(jobsets, job, "too bad")
    (jobset,) = cluster.list(JOBSET, "default").items
    assert jobset["spec"]["suspend"] is True
    with pytest.raises(StoppedEarly, match="too bad"):
        run_to_end(Submission(jobsets, REQUEST, Identity("airflow/d", "r", "train", 0), "default"), Waiting())


def test_a_user_may_resume_it_and_an_ended_job_is_left_alone(cluster: EmbeddedCluster, set_status: Callable[..., Any]) -> None:
    job = submit(cluster, 0)
    stop_early(cluster, job, "too bad")
    assert resume_job(cluster, job) is ResumeOutcome.resumed
    assert names.STOPPED_EARLY_ANNOTATION not in annotations_of(current(cluster, job))
    assert early_stop_reason(current(cluster, job)) == ""
    set_status(job, "Complete")
    assert not stop_early(cluster, job, "late")
    other = submit(cluster, 1)
    cluster.delete(TRAINJOB, other["metadata"]["name"], "default")
    assert not stop_early(cluster, other, "gone")
