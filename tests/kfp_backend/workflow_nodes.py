"""The nodes of a step as Argo keeps them in the status of its workflow.

Facts are in the reference `kfp.md`, "A loaded backend": the node of a bare component's driver has 4 kB, that of its executor 2.6.
"""

from __future__ import annotations

from typing import Any

from step_program import StepProgram

_TIME = "2026-11-28T12:00:00Z"


def workflow_nodes(name: str, program: StepProgram, *, is_wrapped: bool) -> dict[str, dict[str, Any]]:
    """Return the nodes of a try, by their ids. With a retry strategy for every template, a second node wraps that of each pod."""
    driver = _node(
        f"{name}-driver", dict(program.driver_inputs), {"pod-spec-patch": program.pod_patch, "cached-decision": "false"}
    )
    executor = _node(name, {"pod-spec-patch": program.pod_patch, "cached-decision": "false"}, {})
    nodes = [driver, executor]
    if is_wrapped:
        nodes += [{**one, "id": f"{one['id']}-retry", "type": "Retry", "children": [one["id"]]} for one in nodes]
    return {one["id"]: one for one in nodes}


def _node(name: str, inputs: dict[str, str], outputs: dict[str, str]) -> dict[str, Any]:
    """Return a node with all that Argo notes of a pod."""
    return {
        "id": f"pipeline-{abs(hash(name))}",
        "name": name,
        "displayName": name.rpartition(".")[2],
        "type": "Pod",
        "templateName": "system-container-impl",
        "templateScope": f"local/{name.partition('.')[0]}",
        "phase": "Succeeded",
        "boundaryID": f"pipeline-{abs(hash(name.rpartition('.')[0]))}",
        "startedAt": _TIME,
        "finishedAt": _TIME,
        "progress": "1/1",
        "hostNodeName": "node-1",
        "nodeFlag": {"retried": True},
        "resourcesDuration": {"cpu": 1, "memory": 10},
        "inputs": {"parameters": [{"name": key, "value": value} for key, value in inputs.items()]},
        "outputs": {
            "parameters": [
                {"name": key, "value": value, "valueFrom": {"path": f"/tmp/outputs/{key}", "default": ""}}
                for key, value in outputs.items()
            ],
            "artifacts": [{"name": "main-logs", "s3": {"key": f"private-artifacts/kubeflow/{name}/2026/11/28/main.log"}}],
            "exitCode": "0",
        },
    }
