"""A run has ended well only where its records or TrainJobs say so."""

from __future__ import annotations

from typing import Any

import pytest
from factories import trainjob

from trainwright.api import names
from trainwright.api.objects import Obj
from trainwright.api.times import parse_time
from trainwright.ui.models.run_rows import QUIET_SECONDS, Evaluated, RunState, state_of
from trainwright.workspace.retention import IDLE_SECONDS
from trainwright.workspace.run_record import RunRecord

BEGAN, ENDED = "2026-01-01T10:00:00Z", "2026-01-01T11:00:00Z"
AT_END = parse_time(ENDED).timestamp()
SOON, LATER = AT_END + 60, AT_END + QUIET_SECONDS
MUCH_LATER = AT_END + 60 + QUIET_SECONDS
NEXT_DAYS = AT_END + IDLE_SECONDS


def record(**fields: Any) -> RunRecord:
    return RunRecord(**{"run": "r1", "owner": "kfp", "started": BEGAN, "updated": BEGAN, **fields})


def job(
    condition: str = "", *, step: str = "train", attempt: int = 1, at: str = ENDED, suspend: bool = False, **annotations: str
) -> Obj:
    noted = {names.OWNER_ANNOTATION: f"kfp/r1/{step}", names.ATTEMPT_ANNOTATION: str(attempt)}
    noted |= {names.RUN_FOLDER_ANNOTATION: "pvc://data/runs/r1", **annotations}
    made = trainjob(f"{step}-{attempt}", metadata={"annotations": noted}, **({"suspend": True} if suspend else {}))
    made["metadata"]["creationTimestamp"] = BEGAN
    ended = {"type": condition, "status": "True", "reason": "Why", "message": "out of memory", "lastTransitionTime": at}
    running = [{"name": "node", "ready": 1}] if condition == "Running" else []
    conditions = [ended] if condition in ("Complete", "Failed") else []
    return {**made, "status": {"conditions": conditions, "jobsStatus": running}}


FINITE, NOT_FINITE = Evaluated(AT_END + 30, True), Evaluated(AT_END + 30, False)
AFTER = "2026-01-01T11:00:30Z"
RETRIED = {names.RETRIED_ANNOTATION: "true"}


@pytest.mark.parametrize(
    ("run", "jobs", "evaluation", "now", "state"),
    [
        # A run without a step that evaluates: nothing records its end.
        (record(exported="s3://x", updated=AFTER), [job("Complete")], None, MUCH_LATER, "succeeded"),
        (record(exported="s3://x", updated=AFTER), [job("Complete")], None, SOON, "in progress"),
        (record(exported="s3://x", updated=AFTER, ended=AFTER), [job("Complete")], None, SOON, "succeeded"),
        (record(exported="s3://x"), [job("Complete")], None, LATER, "ended"),  # by an earlier attempt
        (record(), [job("Complete")], None, LATER, "ended"),  # its step that exports may have failed
        (record(), [job("Complete")], None, SOON, "in progress"),
        (record(ended=AFTER), [job("Complete")], None, SOON, "ended"),
        # One that failed in training.
        (record(), [job("Failed")], None, SOON, "failed"),
        (record(), [job("Failed", **RETRIED)], None, SOON, "in progress"),
        (record(), [job("Failed", **RETRIED)], None, LATER, "failed"),
        (record(updated=AFTER), [job("Failed")], None, SOON, "in progress"),
        (record(updated=AFTER), [job("Failed")], None, MUCH_LATER, "failed"),
        (record(ended=AFTER), [job("Failed")], None, SOON, "failed"),
        (record(exported="s3://x", updated=AFTER), [job("Failed"), job("Complete", attempt=2)], None, MUCH_LATER, "succeeded"),
        (record(exported="s3://x", updated=AFTER), [job("Complete", attempt=2), job("Failed")], None, MUCH_LATER, "succeeded"),
        (record(), [job("Complete"), job("Failed", step="evaluate")], None, LATER, "failed"),
        (record(ended=AFTER), [job("Failed", step="evaluate-a"), job("Complete")], FINITE, LATER, "succeeded"),
        (record(failed="train: refused"), [], None, SOON, "failed"),
        # One in progress.
        (record(), [job("Running")], None, NEXT_DAYS, "in progress"),
        (record(), [job("")], None, NEXT_DAYS, "in progress"),
        (record(ended=AFTER, failed="lost"), [job("Running")], FINITE, LATER, "in progress"),
        (record(), [job("Complete"), job("Running", step="evaluate")], None, LATER, "in progress"),
        (record(), [], None, LATER, "in progress"),
        # Evaluated: the evaluation records the end of its run.
        (record(ended=AFTER), [], FINITE, SOON, "succeeded"),
        (record(ended=AFTER), None, FINITE, SOON, "succeeded"),
        (record(), [job("Complete")], NOT_FINITE, SOON, "failed"),
        (record(ended=AFTER), [], NOT_FINITE, LATER, "failed"),
        # Suspended, and given up.
        (record(), [job(suspend=True)], None, NEXT_DAYS, "suspended"),
        (record(ended=AFTER), [job(suspend=True)], None, SOON, "given up"),
        (record(), [job(suspend=True, **{names.STOPPED_EARLY_ANNOTATION: "worse"})], None, SOON, "given up"),
        (record(), [], None, NEXT_DAYS, "given up"),
        # Nothing says how it ended.
        (record(ended=AFTER), [], None, SOON, "ended"),
        (record(exported="s3://x"), [], None, LATER, "ended"),
        (record(ended=AFTER), None, None, SOON, "ended"),
        (record(), None, None, LATER, "unknown"),
    ],
)
def test_state_of_a_run(run: RunRecord, jobs: list[Obj] | None, evaluation: Evaluated | None, now: float, state: str) -> None:
    assert state_of(run, jobs, evaluation, has_output=False, now=now).state == state


def test_success_without_an_evaluation_says_so() -> None:
    found = state_of(record(exported="s3://x", updated=AFTER), [job("Complete")], None, has_output=True, now=MUCH_LATER)
    assert found == RunState("succeeded", "TrainJob train-1 succeeded; not evaluated")


def test_failure_names_the_job_and_its_reason() -> None:
    found = state_of(record(), [job("Failed")], None, has_output=True, now=SOON)
    assert found == RunState("failed", "TrainJob train-1 failed: Why: out of memory")


def test_deleted_job_that_has_trained_ends_its_run() -> None:
    found = state_of(record(), [], None, has_output=True, now=LATER)
    assert found == RunState("ended", "nothing was exported; its TrainJobs were deleted")
    deleting = job("Running")
    deleting["metadata"]["deletionTimestamp"] = ENDED
    assert state_of(record(), [deleting], None, has_output=True, now=LATER) == found


def test_step_that_prepares_in_a_pod_is_no_success() -> None:
    prepared = job("Complete", step="prepare")
    del prepared["metadata"]["annotations"][names.RUN_FOLDER_ANNOTATION]
    assert state_of(record(), [prepared], None, has_output=False, now=LATER).state == "in progress"
    assert state_of(record(ended=AFTER), [prepared], None, has_output=False, now=LATER).state == "ended"
