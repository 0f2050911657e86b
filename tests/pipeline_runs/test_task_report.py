"""Failed tasks in what servers return of a run: those of today, which link nothing, and newer ones."""

from __future__ import annotations

from typing import Any

from trainwright.pipeline_runs.task_report import failed_tasks, failure_message


def task(name: str, state: str = "FAILED", end: int = 0, **fields: Any) -> dict[str, Any]:
    return {"display_name": name, "state": state, "end_time": f"2026-11-22T10:00:{end:02}Z", **fields}


def run_with(*tasks: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"display_name": "finetune-x", "run_details": {"task_details": list(tasks)}, **fields}


def test_the_first_to_fail_comes_first_and_pods_of_every_task_are_left_out() -> None:
    """As version 2.17 lists them: pods by display name, without messages and links."""
    run = run_with(
        task("finetune-x", end=9),
        task("root", end=9),
        task("root-driver", "SUCCEEDED"),
        task("fine-tuning", end=8),
        task("train", end=7),
        task("executor", end=7),
        task("train-driver", "SUCCEEDED"),
        task("initialize-dataset", "SUCCEEDED"),
    )
    assert [each.name for each in failed_tasks(run)] == ["train", "fine-tuning"]


def test_a_message_of_a_pod_is_that_of_its_task() -> None:
    run = run_with(
        task("train", end=7, task_id="t1", child_tasks=[{"pod_name": "pod-1"}]),
        task("executor", end=6, task_id="t2", pod_name="pod-1", error={"code": 2, "message": "OOMKilled\nsecond line"}),
        task("evaluate-driver", end=8, error={"message": "cannot resolve\x1b[31m"}),
    )
    assert [(each.name, each.message, each.pods) for each in failed_tasks(run)] == [
        ("train", "OOMKilled", ("pod-1",)),
        ("train", "", ()),
        ("evaluate", "cannot resolve [31m", ()),
    ]


def test_the_message_of_the_last_state_is_used_if_the_task_has_none() -> None:
    history = [{"state": "RUNNING"}, {"state": "FAILED", "error": {"message": "pod deleted"}}]
    [failed] = failed_tasks(run_with(task("train", state_history=history, executor_detail={"failed_main_jobs": ["a", "b"]})))
    assert (failed.message, failed.pods) == ("pod deleted", ("a", "b"))


def test_a_terminated_run_is_said_to_be_one() -> None:
    """The server ends it as FAILED, without a message."""
    assert (
        failure_message({"state": "FAILED", "state_history": [{"state": "CANCELING"}, {"state": "FAILED"}]})
        == "it was terminated"
    )
    assert failure_message({"state": "FAILED", "error": {"message": "no such image"}}) == "no such image"


def test_odd_answers_have_no_failed_tasks() -> None:
    for run in ({}, {"run_details": None}, {"run_details": {"task_details": None}}, run_with(task("", error=None))):
        assert failed_tasks(run) == []
