"""Pods of a run's steps as Argo makes them, and a server's answer about the run as it was recorded: KFP 2.17.0, Argo 4.0.8.

The server names neither pods of tasks nor reasons of failures: `pod_name` of child tasks is the id of a node.
"""

from __future__ import annotations

from typing import Any

from factories import container_status, pod

Obj = dict[str, Any]


def step_pod(
    run_id: str, node: str, phase: str = "Succeeded", *, exit_code: int | None = None, message: str = "", second: int = 0
) -> Obj:
    """Return the pod of a node, such as `flow(0).root(0).train(0).executor(0)`."""
    name = "pod-of-" + "".join(letter if letter.isalnum() else "-" for letter in node.lower()).strip("-")
    status: Obj = {"phase": phase, "startTime": f"2026-11-28T11:06:{second:02}Z"}
    if phase in ("Succeeded", "Failed"):
        code = exit_code if exit_code is not None else int(phase == "Failed")
        times = {"startedAt": status["startTime"], "finishedAt": f"2026-11-28T11:07:{second:02}Z"}
        ended = {"exitCode": code, "reason": "Error" if code else "Completed", **times}
        ended |= {"message": message} if message else {}
        main = container_status({"terminated": ended}, name="main")
        status["containerStatuses"] = [main]
    annotations = {"workflows.argoproj.io/node-name": node}
    labels, metadata = {"pipeline/runid": run_id}, {"annotations": annotations, "uid": f"uid-of-{name}"}
    return pod(name, namespace="kubeflow", labels=labels, metadata=metadata, status=status)


def listed_task(name: str, state: str, child: str = "", second: int = 0) -> Obj:
    """Return a task as the server lists it; `child` is the id of a node that follows it."""
    entry: Obj = {
        "task_id": f"id-of-{name}-{second}",
        "display_name": name,
        "create_time": "2026-11-28T11:05:43Z",
        "start_time": f"2026-11-28T11:06:{second:02}Z",
        "end_time": f"2026-11-28T11:07:{second:02}Z",
        "state": state,
    }
    return {**entry, "child_tasks": [{"pod_name": child}]} if child else entry


def listed_run(workflow: str, states: dict[str, str], *more: Obj, state: str = "FAILED") -> Obj:
    """Return the tasks of a workflow as the server lists them: each with its driver and its executor, and one for each attempt."""
    entries = [listed_task(each, state, f"{workflow}-{number}") for number, each in enumerate((workflow, f"{workflow}(0)"))]
    for name in ("root-driver", "root"):
        entries += [listed_task(each, state if name == "root" else "SUCCEEDED", f"{workflow}-3") for each in (name, f"{name}(0)")]
    for second, (name, of_task) in enumerate(states.items()):
        nodes = {f"{name}-driver": "SUCCEEDED", name: of_task, "executor": of_task}
        for node, of_node in nodes.items():
            child = f"{workflow}-{second}" if node != "executor" else ""
            entries += [listed_task(node, of_node, f"{workflow}-9", second), listed_task(f"{node}(0)", of_node, child, second)]
    return {"state": state, "run_details": {"task_details": [*entries, *more]}}
