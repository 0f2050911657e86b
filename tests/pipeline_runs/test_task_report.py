"""Tasks and their failures in what servers return of a run: nodes of Argo, with and without links and attempts, and newer answers."""

from __future__ import annotations

from typing import Any

import pytest
from servers.kfp_messages import unknown_keys
from servers.kfp_task_details import NodeTree

from trainwright.pipeline_runs.task_nodes import failed_tasks, failure_message, tasks_of


def task(name: str, state: str = "FAILED", end: int = 0, **fields: Any) -> dict[str, Any]:
    return {"display_name": name, "state": state, "end_time": f"2026-11-22T10:00:{end:02}Z", **fields}


def run_with(*tasks: dict[str, Any], **fields: Any) -> dict[str, Any]:
    run = {"display_name": "my run", "run_details": {"task_details": list(tasks)}, **fields}
    assert not list(unknown_keys(run, "V2beta1Run"))
    return run


@pytest.fixture(params=[True, False], ids=["templateDefaults", "older"])
def tree(request: pytest.FixtureRequest) -> NodeTree:
    return NodeTree(has_template_defaults=request.param)


def test_tasks_have_no_attempts_and_no_drivers_and_executors(tree: NodeTree) -> None:
    tree.group("exit-handler-1")
    tree.task("start-run")
    tree.group("mine")
    tree.task("train", ["RUNNING"])
    tasks = tasks_of(run_with(*tree.details), frozenset({"mine", "exit-handler-1"}))
    assert [(each.name, each.state) for each in tasks] == [("start-run", "SUCCEEDED"), ("train", "RUNNING")]
    assert tasks[-1].pod == (tree.pods.get("train/executor(0)") or tree.pods["train/executor"])


def test_a_failure_is_reported_once_with_the_pod_of_its_last_attempt(tree: NodeTree) -> None:
    tree.group("exit-handler-1", ["FAILED"])
    tree.task("start-run")
    tree.task("train", ["FAILED", "FAILED"])
    [failed] = failed_tasks(run_with(*tree.details))
    assert (failed.name, failed.state, failed.message, failed.pod) == ("train", "FAILED", "", tree.pods["train/executor(1)"])


def test_a_task_that_succeeds_when_it_is_tried_again_has_not_failed(tree: NodeTree) -> None:
    tree.task("train", ["FAILED", "SUCCEEDED"])
    tree.task("evaluate", ["FAILED"])
    [failed] = failed_tasks(run_with(*tree.details))
    assert failed.name == "evaluate"
    assert failed.pod in tree.pods.values()


def test_tasks_that_follow_each_other_each_have_their_own_pod(tree: NodeTree) -> None:
    for name in ("train", "evaluate", "register"):
        tree.task(name, ["FAILED"])
    found = {each.name: each.pod for each in failed_tasks(run_with(*tree.details))}
    executors = {key.split("/")[0]: pod for key, pod in tree.pods.items() if "/executor" in key}
    assert found == executors


def test_tasks_of_one_name_are_numbered(tree: NodeTree) -> None:
    tree.group("for-loop-2")
    for state in ("SUCCEEDED", "FAILED", "SUCCEEDED"):
        tree.task("train", [state])
    run = run_with(*tree.details)
    assert [(each.name, each.state) for each in tasks_of(run)] == [
        ("train #1", "SUCCEEDED"),
        ("train #2", "FAILED"),
        ("train #3", "SUCCEEDED"),
    ]
    [failed] = failed_tasks(run)
    assert (failed.name, bool(failed.pod)) == ("train #2", True)


@pytest.mark.parametrize("name", ["evaluate", "condition-1"])
def test_a_driver_that_fails_is_the_failure_of_its_task_or_group(tree: NodeTree, name: str) -> None:
    tree.task("train")
    tree.task(name, driver="FAILED")
    [failed] = failed_tasks(run_with(*tree.details))
    assert (failed.name, failed.pod in tree.pods.values()) == (name, True)
    assert failed.pod == next(pod for key, pod in tree.pods.items() if key.startswith(f"{name}/{name}-driver"))


def test_a_pipeline_of_the_name_of_its_task_has_that_task() -> None:
    tree = NodeTree("train-x1y2z")
    tree.task("train", ["FAILED"])
    [failed] = failed_tasks(run_with(*tree.details))
    assert failed.name == "train"


def test_a_group_is_reported_if_nothing_in_it_has_failed() -> None:
    [failed] = failed_tasks(run_with(task("root"), task("fine-tuning", end=8)), frozenset({"fine-tuning"}))
    assert failed.name == "fine-tuning"


def test_without_links_the_only_failure_gets_the_only_pod_that_failed() -> None:
    run = run_with(
        task("my run", end=9),
        task("exit-handler-1", end=8),
        task("train(0)", end=7),
        task("executor(0)", end=7, pod_name="pod-1"),
        task("executor(0)", "SUCCEEDED", pod_name="pod-2"),
    )
    assert [(each.name, each.pod) for each in failed_tasks(run)] == [("train", "pod-1")]
    run = run_with(task("train(0)", end=7), task("score(0)", end=8), task("executor(0)", pod_name="pod-1"))
    assert [(each.name, each.pod) for each in failed_tasks(run)] == [("train", ""), ("score", "")]


def test_a_message_of_a_pod_is_that_of_its_task() -> None:
    run = run_with(
        task("train", end=7, task_id="t1", child_tasks=[{"pod_name": "pod-1"}]),
        task("executor", end=6, task_id="t2", pod_name="pod-1", error={"code": 2, "message": "OOMKilled\nsecond line"}),
        task("evaluate-driver", end=8, error={"message": "cannot resolve\x1b[31m"}),
    )
    assert [(each.name, each.message, each.pod) for each in failed_tasks(run)] == [
        ("train", "OOMKilled", "pod-1"),
        ("evaluate", "cannot resolve [31m", ""),
    ]


def test_links_of_newer_servers_are_followed() -> None:
    """By ids of tasks, in either direction."""
    up = run_with(
        task("a", task_id="1"), task("executor", task_id="2", parent_task_id="1", pod_name="pod-1"), task("b", task_id="3")
    )
    down = run_with(
        task("a", task_id="1", child_tasks=[{"task_id": "2"}]), task("executor", task_id="2", pod_name="pod-1"), task("b")
    )
    for run in (up, down):
        assert {each.name: each.pod for each in failed_tasks(run)} == {"a": "pod-1", "b": ""}


def test_the_message_of_the_last_state_is_used_if_the_task_has_none() -> None:
    history = [{"state": "RUNNING"}, {"state": "FAILED", "error": {"message": "pod deleted"}}]
    [failed] = failed_tasks(run_with(task("train", state_history=history, executor_detail={"failed_main_jobs": ["a", "b"]})))
    assert (failed.message, failed.pod) == ("pod deleted", "b")


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
