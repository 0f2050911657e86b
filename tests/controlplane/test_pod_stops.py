"""What a pod that is being deleted still does: hooks of its sidecars begin at once, and whether it is ready stays of interest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from factories import pod
from support.waiting import eventually

from trainwright.api.kinds import POD
from trainwright.embedded.plane import ControlPlane

pytestmark = pytest.mark.medium

OBEDIENT = "trap 'exit 0' TERM; touch /data/obedient; while true; do sleep 0.1; done"
UNTIL = "trap '{}until [ -e /data/{} ]; do sleep 0.05; done; exit 0' TERM; touch /data/until; while true; do sleep 0.1; done"


def kept_pod(main: dict[str, Any], *sidecars: dict[str, Any]) -> dict[str, Any]:
    """A pod whose object stays when it is deleted, so that its last status can be read."""
    containers = [
        {"name": "main", "image": "i", **main},
        *({"image": "i", "restartPolicy": "Always", **each} for each in sidecars),
    ]
    for container in containers:
        container["command"] = ["sh", "-c", container["command"]]
        container["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    spec = {"containers": containers[:1], "initContainers": containers[1:], "volumes": [{"name": "data", "emptyDir": {}}]}
    return pod(metadata={"finalizers": ["example.com/kept"]}, **spec)


def statuses(plane: ControlPlane) -> dict[str, Any]:
    """The statuses of the containers by name."""
    status = plane.cluster.get(POD, "p", "default")["status"]
    return {each["name"]: each for each in [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]}


def have_traps(plane: ControlPlane, tmp_path: Path, *names: str) -> None:
    """Wait until the programs have said what they do at SIGTERM: before that, the first process of a namespace ignores it."""
    eventually(lambda: all((data_of(plane, tmp_path) / name).exists() for name in names))


def data_of(plane: ControlPlane, tmp_path: Path) -> Path:
    uid = plane.cluster.get(POD, "p", "default")["metadata"]["uid"]
    return tmp_path / "home/node/pods" / uid / "volumes/data"


def let_go(plane: ControlPlane) -> None:
    plane.cluster.patch(POD, "p", {"metadata": {"finalizers": None}}, "default")
    eventually(lambda: not plane.cluster.list(POD, "default").items)


def test_the_hook_of_a_sidecar_does_not_wait_for_the_main_container(plane: ControlPlane, tmp_path: Path) -> None:
    hook = {"exec": {"command": ["touch", "/data/hooked"]}}
    sidecar = {"name": "side", "command": OBEDIENT, "lifecycle": {"preStop": hook}}
    plane.cluster.create(kept_pod({"command": UNTIL.format("", "hooked")}, sidecar))
    eventually(lambda: all("running" in each["state"] for each in statuses(plane).values()) and len(statuses(plane)) == 2)
    have_traps(plane, tmp_path, "until", "obedient")
    plane.cluster.delete(POD, "p", "default")
    eventually(lambda: all("terminated" in each["state"] for each in statuses(plane).values()))
    ends = {name: each["state"]["terminated"] for name, each in statuses(plane).items()}
    assert {name: end["exitCode"] for name, end in ends.items()} == {"main": 0, "side": 0}
    let_go(plane)


def test_a_pod_that_is_being_deleted_says_when_it_is_no_longer_ready(plane: ControlPlane, tmp_path: Path) -> None:
    probe = {"exec": {"command": ["sh", "-c", "! [ -e /data/stopping ]"]}, "periodSeconds": 1, "failureThreshold": 1}
    plane.cluster.create(kept_pod({"command": UNTIL.format("touch /data/stopping; ", "go"), "readinessProbe": probe}))
    eventually(lambda: statuses(plane).get("main", {}).get("ready"))
    have_traps(plane, tmp_path, "until")
    plane.cluster.delete(POD, "p", "default")
    eventually(lambda: not statuses(plane)["main"]["ready"], what="the pod is not ready")
    assert "running" in statuses(plane)["main"]["state"]
    (data_of(plane, tmp_path) / "go").touch()
    eventually(lambda: "terminated" in statuses(plane)["main"]["state"])
    assert statuses(plane)["main"]["state"]["terminated"]["exitCode"] == 0
    let_go(plane)
