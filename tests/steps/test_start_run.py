"""The first step of a run: its workspace is found, or made, before anything mounts it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from factories import train_request
from support.refusing_cluster import refusing

from trainwright.api.kinds import CLAIM
from trainwright.api.objects import annotations_of, labels_of, name_of, owners_of, uid_of
from trainwright.controlplane.controllers.housekeeping import claim_folders
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.jobs import Identity, Submission, submit_or_adopt
from trainwright.jobs.diagnosis.errors import WorkspaceMismatch
from trainwright.steps.start import StartedRun, start_run
from trainwright.submission import JobsClient

NEW = "pvc://new?size=2Gi"


def start(cluster: Any, workspace: str, **fields: Any) -> StartedRun:
    given = {"owner": "kfp", "run_id": "Run_1", "namespace": "default", **fields}
    return start_run(cluster, workspace, **given)


def test_beside_an_embedded_cluster_steps_get_the_folder_of_the_claim(
    cluster: EmbeddedCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_claim(cluster)
    reconcile_claims(cluster, tmp_path)
    monkeypatch.setattr(JobsClient, "is_embedded", lambda _client: True)
    folder = tmp_path / "default/there"
    assert start(cluster, "pvc://there/team").path == f"{folder}/team"
    assert start(cluster, "pvc://there", workspace_path="/mnt/w").path == "/mnt/w"
    other = tmp_path / "of the machine"
    other.mkdir()
    for mount, path in ((other, folder), (folder, folder)):
        monkeypatch.setattr("trainwright.jobs.submit.workspace_claim.MOUNT", str(mount))
        assert start(cluster, "pvc://there", workspace_path=str(mount)).path == str(path)


def reconcile_claims(cluster: EmbeddedCluster, folder: Path) -> None:
    claim_folders(cluster, folder).reconcile(("default", "there"))


def make_claim(cluster: EmbeddedCluster, name: str = "there") -> None:
    spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    metadata = {"name": name, "namespace": "default"}
    cluster.create({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec})


def claims(cluster: EmbeddedCluster) -> list[str]:
    return [name_of(claim) for claim in cluster.list(CLAIM, "default").items]


@pytest.mark.parametrize(("nodes", "access"), [(1, "ReadWriteOnce"), (2, "ReadWriteMany")])
def test_a_claim_with_a_size_is_made_for_as_many_nodes_and_found_again(cluster: EmbeddedCluster, nodes: int, access: str) -> None:
    started = start(cluster, NEW, num_nodes=nodes)
    assert started == StartedRun("Run_1", "new", "pvc://new", "/workspace")
    claim = cluster.get(CLAIM, "new", "default")
    assert claim["spec"]["accessModes"] == [access]
    assert claim["spec"]["resources"]["requests"]["storage"] == "2Gi"
    assert "kfp/Run_1" in annotations_of(claim).values()
    assert "trainwright" in labels_of(claim).values()
    assert start(cluster, NEW, num_nodes=nodes) == started
    assert uid_of(cluster.get(CLAIM, "new", "default")) == uid_of(claim)


@pytest.mark.parametrize(
    ("workspace", "path", "names"),
    [
        ("there", "/workspace", "pvc://there"),
        ("pvc://there", "/workspace", "pvc://there"),
        ("pvc://there/team/a", "/workspace/team/a", "pvc://there/team/a"),
        ("there/team/", "/workspace/team", "pvc://there/team"),
        ("pvc://there/team?size=1Gi", "/workspace/team", "pvc://there/team"),
    ],
)
def test_a_claim_that_is_there_is_taken_with_its_folder(cluster: EmbeddedCluster, workspace: str, path: str, names: str) -> None:
    make_claim(cluster)
    assert start(cluster, workspace) == StartedRun("Run_1", "there", names, path)
    assert start(cluster, workspace, workspace_path="/mnt/w/").path == path.replace("/workspace", "/mnt/w")
    assert claims(cluster) == ["there"]


@pytest.mark.parametrize("workspace", ["missing", "pvc://missing/folder"])
def test_a_claim_that_is_not_there_is_refused_with_the_remedy(cluster: EmbeddedCluster, workspace: str) -> None:
    with pytest.raises(WorkspaceMismatch, match=r"'missing' does not exist in default.*pvc://missing\?size=20Gi"):
        start(cluster, workspace)
    assert claims(cluster) == []


@pytest.mark.parametrize("workspace", ["", "Upper", "s3://bucket", "pvc://new?size=none", "pvc://new?speed=1"])
def test_a_workspace_that_makes_no_sense_is_refused(cluster: EmbeddedCluster, workspace: str) -> None:
    with pytest.raises(ValueError, match="workspace: "):
        start(cluster, workspace)


def test_who_may_not_read_claims_starts_with_a_warning(cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture) -> None:
    assert start(refusing(cluster, "get", kinds=[CLAIM]), "unseen").claim == "unseen"
    assert start(refusing(cluster, "get", kinds=[CLAIM]), NEW).claim == "new"
    assert claims(cluster) == ["new"]
    assert start(refusing(cluster, "get", kinds=[CLAIM]), NEW).workspace == "pvc://new", "made by an earlier try"
    assert "claim=unseen warning=the claim cannot be read" in caplog.text


def test_a_claim_of_another_run_is_taken_only_if_it_is_large_enough(cluster: EmbeddedCluster) -> None:
    start(cluster, NEW, run_id="other")
    assert start(cluster, "pvc://new?size=1Gi").claim == "new"
    with pytest.raises(WorkspaceMismatch, match="size: it has 2Gi, 3Gi is requested"):
        start(cluster, "pvc://new?size=3Gi")


def test_a_claim_that_is_to_go_with_its_jobs_does_so(cluster: EmbeddedCluster) -> None:
    started = start(cluster, "pvc://new/folder?size=2Gi&retain=delete")
    assert (started.workspace, started.path) == ("pvc://new/folder?size=2Gi&retain=delete", "/workspace/folder")
    request = train_request(workspace=started.workspace, dataset_uri="hf://a/b", model_uri="hf://a/b")
    job = submit_or_adopt(Submission(cluster, request, Identity("kfp", "Run_1", "train"), "default")).trainjob
    assert [owner["uid"] for owner in owners_of(cluster.get(CLAIM, "new", "default"))] == [uid_of(job)]
