"""What a pod gets to reach the API server as its service account, and how it goes without."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from factories import cluster_in_memory, pod

from trainwright.api.names import SERVICE_ACCOUNT_PATH
from trainwright.controlplane.node.volumes import VolumeMaker
from trainwright.controlplane.node.volumes.memory import MemoryFolders
from trainwright.controlplane.node.volumes.projections import API_ACCESS_VOLUME, api_access_mounts

Obj = dict[str, Any]


@pytest.fixture
def volumes(tmp_path: Path) -> Iterator[VolumeMaker]:
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "automountServiceAccountToken": False}

    def issue(audience: str, pod: Obj, seconds: int) -> str:
        return f"{audience}|{pod['metadata']['name']}|{seconds}"

    with cluster_in_memory({**account, "metadata": {"name": "quiet", "namespace": "default"}}) as cluster:
        yield VolumeMaker(cluster, tmp_path / "claims", issue, MemoryFolders(tmp_path / "shm"), "certificate")


def pod_with(**spec: Any) -> Obj:
    return pod(metadata={"uid": "u-1"}, **spec)


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir() if not path.name.startswith("..")}


def test_a_pod_has_a_token_the_certificate_and_its_namespace(volumes: VolumeMaker, tmp_path: Path) -> None:
    made = volumes.make(pod_with(), tmp_path / "pod")[API_ACCESS_VOLUME]
    assert contents(made.path) == {"token": "|p|3607", "ca.crt": "certificate", "namespace": "default"}
    assert made.read_only


@pytest.mark.parametrize(
    ("spec", "has_access"),
    [
        ({"automountServiceAccountToken": False}, False),
        ({"serviceAccountName": "quiet"}, False),
        ({"serviceAccountName": "quiet", "automountServiceAccountToken": True}, True),
        ({"serviceAccountName": "unknown"}, True),
        ({"volumes": [{"name": "other", "emptyDir": {}}]}, True),
    ],
)
def test_the_pod_decides_before_its_account(spec: Obj, has_access: bool, volumes: VolumeMaker, tmp_path: Path) -> None:
    assert (API_ACCESS_VOLUME in volumes.make(pod_with(**spec), tmp_path / "pod")) is has_access


def test_a_volume_of_the_pod_may_name_the_certificate_as_on_a_cluster(volumes: VolumeMaker, tmp_path: Path) -> None:
    source = {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}}
    pod = pod_with(volumes=[{"name": "own", "projected": {"sources": [source]}}])
    assert contents(volumes.make(pod, tmp_path / "pod")["own"].path) == {"ca.crt": "certificate"}


def test_a_container_that_mounts_something_there_keeps_it(tmp_path: Path) -> None:
    (mount,) = api_access_mounts({"name": "main"}, tmp_path)
    assert (mount.container_path, mount.host_path, mount.read_only) == (SERVICE_ACCOUNT_PATH, tmp_path, True)
    assert (
        api_access_mounts({"name": "main", "volumeMounts": [{"name": "v", "mountPath": f"{SERVICE_ACCOUNT_PATH}/"}]}, tmp_path)
        == []
    )
    assert api_access_mounts({"name": "main"}, None) == []
