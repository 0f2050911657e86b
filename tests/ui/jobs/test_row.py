"""Tests the rows of the list: phase with reason, progress, nodes, and who made a job."""

from __future__ import annotations

from typing import Any

import pytest
from factories import trainjob

from trainwright.api import names
from trainwright.api.objects import generation_of
from trainwright.api.phase import Verdict
from trainwright.ui.jobs.row import creator_of, row_of


def row(**fields: Any) -> Any:
    return row_of(trainjob("demo", namespace="team", **fields), lambda _reference, _namespace: 4)


def condition(kind: str, **more: str) -> dict[str, str]:
    return {"type": kind, "status": "True", "reason": "", "message": "", "lastTransitionTime": "2026-11-01T00:00:00Z", **more}


def test_row_shows_what_the_training_reports() -> None:
    metrics = [{"name": "loss", "value": "1.5"}, {"name": "step", "value": "7"}]
    status = {"trainerStatus": {"progressPercentage": 40, "estimatedRemainingSeconds": 90, "metrics": metrics}}
    shown = row(status={**status, "jobsStatus": [{"name": "node", "ready": 1}]}, nodes=2)
    assert (shown["phase"], shown["percent"], shown["remaining"], shown["nodes"]) == ("Running", 40, 90, 2)
    assert shown["metrics"]["loss"] == "1.5"
    assert (shown["namespace"], shown["name"], shown["runtime"]) == ("team", "demo", "torch-distributed")


def test_nodes_are_those_of_the_runtime_unless_set() -> None:
    assert row()["nodes"] == 4
    assert row(nodes=1)["nodes"] == 1


def test_failed_job_has_reason_and_end() -> None:
    shown = row(status={"conditions": [condition("Failed", reason="FailedJobs", message="jobset failed")]})
    assert (shown["phase"], shown["reason"], shown["ended"]) == ("Failed", "FailedJobs: jobset failed", "2026-11-01T00:00:00Z")


def test_succeeded_job_that_reported_is_complete() -> None:
    status = {"conditions": [condition("Complete")], "trainerStatus": {"progressPercentage": 97, "estimatedRemainingSeconds": 3}}
    assert (row(status=status)["percent"], row(status=status)["remaining"]) == (100, None)
    assert row(status={"conditions": [condition("Complete")]})["percent"] is None


def test_queued_job_shows_the_message_of_its_queue() -> None:
    waits = condition(names.QUOTA_RESERVED, status="False", message="insufficient quota\nfor cpu")
    shown = row(suspend=True, labels={names.QUEUE_LABEL: "gpu"}, status={"conditions": [waits]})
    assert (shown["phase"], shown["queue"]) == ("Queued", "gpu")
    assert shown["reason"] == "insufficient quota for cpu"


def test_huge_texts_are_cut() -> None:
    metrics = [{"name": f"m{number}" * 100, "value": "9" * 10_000} for number in range(500)]
    shown = row(status={"conditions": [condition("Failed", message="x" * 100_000)], "trainerStatus": {"metrics": metrics}})
    assert len(shown["reason"]) <= 300
    assert len(str(shown["metrics"])) < 10_000


@pytest.mark.parametrize(
    ("labels", "owner", "expected"),
    [
        ({}, "", ("", "", "", "", "")),
        (
            {names.DAG_LABEL: "daily", names.TASK_LABEL: "train"},
            "airflow/daily/manual__2026-11-01T00:00:00+00:00/train",
            (
                "airflow",
                "daily",
                "manual__2026-11-01T00:00:00+00:00",
                "train",
                "/dags/daily/runs/manual__2026-11-01T00%3A00%3A00%2B00%3A00",
            ),
        ),
        (
            {names.PIPELINE_LABEL: "finetune", names.PIPELINE_RUN_LABEL: "ab12", names.PIPELINE_TASK_LABEL: "train"},
            "kfp/ab12/train",
            ("kfp", "finetune", "ab12", "train", "/#/runs/details/ab12"),
        ),
        ({}, "cli/ada-2026/train", ("trainwright", "cli", "ada-2026", "train", "")),
        ({names.MANAGED_BY_LABEL: "argo"}, "", ("", "argo", "", "", "")),
    ],
)
def test_creator_is_read_from_labels_and_annotations(labels: dict[str, str], owner: str, expected: tuple[str, ...]) -> None:
    annotations = {names.OWNER_ANNOTATION: owner} if owner else {}
    found = creator_of(trainjob("demo", labels=labels, metadata={"annotations": annotations}))
    assert tuple(found.values()) == expected


def test_path_of_a_run_is_escaped() -> None:
    found = creator_of(trainjob("demo", metadata={"annotations": {names.OWNER_ANNOTATION: "airflow/a/../../x?y#z/t"}}))
    assert found["path"] == "/dags/a/runs/..%2F..%2Fx%3Fy%23z"


def test_job_that_was_given_up_has_the_reason_and_time_of_its_verdict() -> None:
    verdict = Verdict("FailedTooOften", "pod a exited 1", time="2026-11-02T00:00:00Z")
    job = trainjob("demo", suspend=True)
    mark = {names.SUSPENDED_BY_ANNOTATION: names.suspended_by_us(generation_of(job))}
    job["metadata"]["annotations"] = verdict.annotation(generation_of(job)) | mark
    shown = row_of(job, lambda _reference, _namespace: 4)
    assert (shown["phase"], shown["reason"]) == ("Failed", "FailedTooOften: pod a exited 1")
    assert shown["ended"] == "2026-11-02T00:00:00Z"
