"""A pipeline step with the shipped role stays what it is: the ways to the administrator's token end before it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from factories import trainjob
from support.running_plane import running_plane
from support.waiting import eventually

from trainwright.api.errors import Forbidden
from trainwright.api.kinds import CLAIM, EVENT, POD, SERVICE_ACCOUNT
from trainwright.api.names import HOST_PATH_ANNOTATION
from trainwright.cluster import connect
from trainwright.cluster.protocol import Cluster
from trainwright.controlplane.apiserver.endpoints.token_requests import issue_token
from trainwright.embedded.plane import ControlPlane
from trainwright.jobs.submit.rbac_manifests import Extras, ServiceAccount, rbac_manifests

pytestmark = pytest.mark.medium
Obj = dict[str, Any]


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with running_plane(tmp_path_factory.mktemp("rights")) as plane:
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "pipeline-runner", "namespace": "default"}}
        runner = ServiceAccount("default", "pipeline-runner")
        for manifest in [account, *rbac_manifests("default", [runner], extras=Extras(workflows=True))]:
            plane.cluster.create(manifest)
        yield plane


@pytest.fixture(scope="module")
def step(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    """The cluster as a step of `trainwright rbac --for kfp` reaches it."""
    issued = issue_token(plane._server, plane._tokens, "default", "pipeline-runner", {"spec": {}}, datetime.now(UTC))
    config = yaml.safe_load(plane._home.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": issued["status"]["token"]}
    path = tmp_path_factory.mktemp("step") / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return connect(path)


def claim(path: Path) -> Obj:
    spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    metadata = {"name": "evil", "namespace": "default", "annotations": {HOST_PATH_ANNOTATION: str(path)}}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}


def test_a_step_chooses_no_folder_of_the_machine_for_a_claim(plane: ControlPlane, step: Cluster, tmp_path: Path) -> None:
    for path in (plane._home.credentials, tmp_path):
        with pytest.raises(Forbidden, match=HOST_PATH_ANNOTATION):
            step.create(claim(path))
    patch = {"metadata": {"annotations": {HOST_PATH_ANNOTATION: str(plane._home.credentials)}}}
    with pytest.raises(Forbidden, match=HOST_PATH_ANNOTATION):
        step.patch(CLAIM, "workspace", patch, "default")


def test_a_training_of_a_step_does_not_mount_the_home(plane: ControlPlane, step: Cluster) -> None:
    pod_spec = {
        "containers": [{"name": "node", "volumeMounts": [{"name": "h", "mountPath": "/h"}]}],
        "volumes": [{"name": "h", "hostPath": {"path": str(plane._home.credentials)}}],
    }
    jobs = [{"name": "node", "template": {"spec": {"template": {"spec": pod_spec}}}}]
    patches = [{"manager": "a.b/c", "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}}]
    step.create(trainjob("evil", namespace="default", script="cat /h/admin.token", runtimePatches=patches))

    def failed_mount() -> bool:
        events = plane.cluster.list(EVENT, "default").items
        return any(event["reason"] == "FailedMount" and "in the home of the cluster" in event["message"] for event in events)

    eventually(failed_mount, what="the pod waits with FailedMount")
    pods = plane.cluster.list(POD, "default").items
    assert pods
    statuses = [status for pod in pods for status in pod["status"].get("containerStatuses") or []]
    assert not any((status.get("state") or {}).get("running") for status in statuses)


def test_a_step_reads_no_secrets_and_makes_no_roles(step: Cluster) -> None:
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "evil", "namespace": "default"},
        "rules": [],
    }
    with pytest.raises(Forbidden):
        step.create(role)
    with pytest.raises(Forbidden):
        step.list(SERVICE_ACCOUNT, "default")
