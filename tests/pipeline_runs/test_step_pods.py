"""Tasks of a server that names no pods get those of the cluster, by the annotation with the path of their node."""

from __future__ import annotations

from typing import Any

import pytest
from servers.recorded_run import listed_run, listed_task, step_pod

from trainwright.pipeline_runs.step_pods import lacks_pods, with_pods
from trainwright.pipeline_runs.task_nodes import failed_tasks, tasks_of

RUN = "1aa2de3a"
LOOP = "for-loop-2(0).iteration-iterations({0}:{0})(0).iteration-item(0)."


def node(place: str) -> str:
    return f"flow-x1y2z(0).root(0).{place}"


def failed(name: str, attempt: int = 0, **fields: Any) -> dict[str, Any]:
    return step_pod(RUN, node(f"{name}(0).executor({attempt})"), "Failed", **fields)


def test_recorded_run_lists_the_workflow_and_exit_handlers_that_are_no_tasks() -> None:
    exit_nodes = [listed_task(each, "FAILED", "flow-x1y2z-7") for each in ("exit-handler-1.onExit", "exit-handler-1.onExit(0)")]
    run = listed_run("flow-x1y2z", {"train": "FAILED", "clean-up": "SUCCEEDED"}, *exit_nodes)
    assert [(task.name, task.state) for task in tasks_of(run)] == [("train", "FAILED"), ("clean-up", "SUCCEEDED")]
    assert [task.name for task in failed_tasks(run)] == ["train"]


def test_failed_tasks_have_their_pods_and_reasons() -> None:
    run = listed_run("flow-x1y2z", {"train": "FAILED", "score": "FAILED", "prepare": "SUCCEEDED"})
    pods = [
        failed("score", exit_code=2, second=1),
        failed("train", message="TrainJobFailed: out of memory", second=2),
        step_pod(RUN, node("prepare(0).executor(0)")),
        *(step_pod(RUN, node(f"{name}-driver(0)")) for name in ("train", "score", "prepare")),
    ]
    assert [(task.name, task.message, task.pod) for task in failed_tasks(with_pods(run, pods))] == [
        ("score", "exited 2", pods[0]["metadata"]["name"]),
        ("train", "TrainJobFailed: out of memory", pods[1]["metadata"]["name"]),
    ]


def test_last_attempt_of_a_task_counts() -> None:
    run = listed_run("flow-x1y2z", {"train": "SUCCEEDED", "score": "FAILED"})
    pods = [
        failed("train"),
        step_pod(RUN, node("train(0).executor(1)")),
        failed("score", 10, exit_code=4),
        failed("score", 9),
    ]
    found = with_pods(run, pods)
    assert [(task.name, task.state) for task in tasks_of(found)] == [("train", "SUCCEEDED"), ("score", "FAILED")]
    [only] = failed_tasks(found)
    assert only.pod == pods[2]["metadata"]["name"]


def test_attempt_that_failed_is_no_failure_while_another_may_follow() -> None:
    run = listed_run("flow-x1y2z", {"train": "RUNNING"}, state="RUNNING")
    [task] = tasks_of(with_pods(run, [failed("train")]))
    assert task.state == "RUNNING"


@pytest.mark.parametrize("attempt", ["(0)", ""], ids=["templateDefaults", "older"])
def test_iterations_of_a_loop_each_have_their_pod(attempt: str) -> None:
    run = listed_run("flow-x1y2z", {"train": "FAILED"}, listed_task("train", "SUCCEEDED", second=9))
    places = [LOOP.format(number) + "train(0).executor(0)" for number in range(3)]
    paths = [node(place).replace("(0)", attempt) if not attempt else node(place) for place in places]
    pods = [step_pod(RUN, path, "Failed" if number == 1 else "Succeeded", second=number) for number, path in enumerate(paths)]
    found = with_pods(run, pods)
    assert [(task.name, task.state) for task in tasks_of(found)] == [
        ("train #1", "SUCCEEDED"),
        ("train #2", "FAILED"),
        ("train #3", "SUCCEEDED"),
    ]
    assert [task.pod for task in failed_tasks(found)] == [pods[1]["metadata"]["name"]]


def test_task_of_an_exit_handler_is_found_below_its_node() -> None:
    run = listed_run("flow-x1y2z", {"clean-up": "FAILED"})
    pods = [step_pod(RUN, node("exit-handler-1.onExit(0).clean-up(0).executor(0)"), "Failed", exit_code=3)]
    [only] = failed_tasks(with_pods(run, pods))
    assert (only.name, only.message) == ("clean-up", "exited 3")


def test_driver_that_failed_is_the_failure_of_its_task() -> None:
    run = listed_run("flow-x1y2z", {"train": "FAILED"})
    entries = run["run_details"]["task_details"]
    run["run_details"]["task_details"] = [
        each | ({"state": "FAILED"} if each["display_name"].startswith("train-driver") else {})
        for each in entries
        if each["display_name"].partition("(")[0] not in ("train", "executor")
    ]
    pod = step_pod(RUN, node("train-driver(0)"), "Failed")
    assert [(task.name, task.pod) for task in failed_tasks(with_pods(run, [pod]))] == [("train", pod["metadata"]["name"])]


def test_cached_task_without_a_pod_stays_as_the_server_lists_it() -> None:
    run = listed_run("flow-x1y2z", {"prepare": "SUCCEEDED", "train": "SUCCEEDED"}, state="SUCCEEDED")
    found = with_pods(run, [step_pod(RUN, node("train(0).executor(0)")), step_pod(RUN, node("prepare-driver(0)"))])
    assert sorted((task.name, task.state, task.pod) for task in tasks_of(found)) == [
        ("prepare", "SUCCEEDED", ""),
        ("train", "SUCCEEDED", step_pod(RUN, node("train(0).executor(0)"))["metadata"]["name"]),
    ]


def test_end_of_a_run_is_the_end_of_its_tasks_even_if_the_server_does_not_see_them_change() -> None:
    run = listed_run("flow-x1y2z", {"train": "RUNNING"}, state="SUCCEEDED")
    [task] = tasks_of(with_pods(run, [step_pod(RUN, node("train(0).executor(0)"))]))
    assert task.state == "SUCCEEDED"


def test_server_that_names_pods_is_not_completed() -> None:
    run = {"run_details": {"task_details": [{"display_name": "executor(0)", "pod_name": "pod-1"}]}}
    assert not lacks_pods(run)
    assert not lacks_pods({"state": "PENDING"})
    assert lacks_pods(listed_run("flow-x1y2z", {"train": "RUNNING"}))


def test_pods_of_no_node_are_left_out() -> None:
    run = listed_run("flow-x1y2z", {"train": "FAILED"})
    odd = [step_pod(RUN, each) for each in ("", "flow-x1y2z", "flow-x1y2z.")]
    assert [task.pod for task in failed_tasks(with_pods(run, odd))] == [""]
