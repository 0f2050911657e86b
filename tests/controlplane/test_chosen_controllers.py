"""A cluster with some of the controllers, or none: what is left to others, and what works all the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from support.running_plane import running_plane
from support.waiting import eventually

from trainwright.api.conditions import is_true
from trainwright.api.errors import NotFound
from trainwright.api.kinds import CLAIM, CONFIG_MAP, JOB, JOBSET, POD, TRAINJOB, Kind
from trainwright.api.objects import name_of, uid_of
from trainwright.embedded.options import ControllerName
from trainwright.embedded.plane import ControlPlane

pytestmark = pytest.mark.medium
RunWith = Callable[..., ControlPlane]


@pytest.fixture
def run_with(tmp_path: Path) -> Iterator[RunWith]:
    """Starts a cluster with these controllers, and stops the one before: all have the same state."""
    with ExitStack() as stack:

        def run(*controllers: ControllerName) -> ControlPlane:
            stack.close()
            return stack.enter_context(running_plane(tmp_path, controllers=controllers))

        yield run


def pod_spec(script: str) -> dict[str, Any]:
    return {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i", "command": ["sh", "-c", script]}]}


def create(plane: ControlPlane, kind: Kind, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default"}
    return plane.cluster.create({"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec})


def phase(plane: ControlPlane, pod: str) -> str:
    return (plane.cluster.get(POD, pod, "default").get("status") or {}).get("phase", "")


def is_gone(plane: ControlPlane, kind: Kind, name: str) -> bool:
    try:
        plane.cluster.get(kind, name, "default")
    except NotFound:
        return True
    return False


def metrics_of(plane: ControlPlane) -> set[str]:
    (seconds,) = [family for family in plane._metrics() if family.name == "trainwright_reconcile_seconds"]
    return {sample.labels["controller"] for sample in seconds.samples}


def test_without_controllers_pods_run_and_a_job_is_nobodys(run_with: RunWith) -> None:
    plane = run_with()
    create(plane, JOB, "counted", {"template": {"spec": pod_spec("true")}})
    create(plane, POD, "by-hand", pod_spec("true"))  # after the Job: what its controller did would be seen first
    eventually(lambda: phase(plane, "by-hand") == "Succeeded")
    assert [name_of(pod) for pod in plane.cluster.list(POD, "default").items] == ["by-hand"]
    assert not plane.cluster.get(JOB, "counted", "default").get("status")
    assert not metrics_of(plane) & set(ControllerName)

    plane = run_with(ControllerName.job)
    eventually(lambda: is_true(plane.cluster.get(JOB, "counted", "default"), "Complete"))
    assert metrics_of(plane) & set(ControllerName) == {"job"}


def test_without_controllers_deletion_and_claims_work(run_with: RunWith) -> None:
    plane = run_with()
    owner = plane.cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner", "namespace": "default"}})
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid_of(owner), "blockOwnerDeletion": True}
    metadata = {"name": "owned", "namespace": "default", "ownerReferences": [reference]}
    plane.cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
    plane.cluster.delete(CONFIG_MAP, "owner", "default", propagation="Foreground")
    eventually(lambda: is_gone(plane, CONFIG_MAP, "owner") and is_gone(plane, CONFIG_MAP, "owned"))
    create(
        plane, CLAIM, "data", {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    )  # its finalizer needs claim protection
    plane.cluster.delete(CLAIM, "data", "default")
    eventually(lambda: is_gone(plane, CLAIM, "data"))


def test_each_controller_is_of_the_kind_that_it_is_named_for(run_with: RunWith) -> None:
    """With those of Jobs and JobSets a JobSet runs, and a TrainJob is left to another manager; with Trainer's alone, the JobSet is."""
    plane = run_with(ControllerName.job, ControllerName.jobset)
    trainer = {"numNodes": 1, "command": ["true"]}
    create(plane, TRAINJOB, "untouched", {"runtimeRef": {"name": "torch-distributed"}, "trainer": trainer})
    replicated = [{"name": "node", "template": {"spec": {"template": {"spec": pod_spec("true")}}}}]
    create(plane, JOBSET, "whole", {"replicatedJobs": replicated})
    eventually(lambda: is_true(plane.cluster.get(JOBSET, "whole", "default"), "Completed"))
    assert is_gone(plane, JOBSET, "untouched")

    plane = run_with(ControllerName.trainjob)
    eventually(lambda: not is_gone(plane, JOBSET, "untouched"))
    create(plane, POD, "later", pod_spec("true"))
    eventually(lambda: phase(plane, "later") == "Succeeded")
    assert not plane.cluster.get(JOBSET, "untouched", "default").get("status")
