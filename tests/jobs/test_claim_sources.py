"""Sources on claims: which volumes and variables the initializers of a job get."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from factories import train_request

from trainwright.api.admission.admit import AdmissionContext, admit
from trainwright.jobs import Identity
from trainwright.jobs.manifest.trainjob_manifest import trainjob_manifest
from trainwright.jobs.submit.resolve import IncompatibleRuntime, resolve
from trainwright.materialize import materialize
from trainwright.runtimes import bundled_runtime
from trainwright.storage.claims import mounted
from trainwright.storage.errors import StorageError
from trainwright.storage.uri import StorageUri

SOURCES = {"dataset_uri": "pvc://data/rows/train.jsonl", "model_uri": "pvc://models/base"}


def pods_of(runtime: dict[str, Any] | None = None, **fields: Any) -> dict[str, dict[str, Any]]:
    """The pod specs of the admitted JobSet, by replicated job."""
    definition = runtime or bundled_runtime("trl-sft") or {}
    request = train_request(runtime="trl-sft", **{**SOURCES, **fields})
    resolve(request, definition)
    trainjob = trainjob_manifest(resolve(request, definition), Identity("kfp", "run", "train"), "default")
    admit(trainjob, context=AdmissionContext(strictness="Strict"))
    jobset = materialize(trainjob, definition)[-1]
    admit(jobset, context=AdmissionContext(strictness="Strict"))
    return {job["name"]: job["template"]["spec"]["template"]["spec"] for job in jobset["spec"]["replicatedJobs"]}


def claim_mounts(pod: dict[str, Any]) -> dict[str, tuple[str, str, bool]]:
    """Mount path to claim, folder on it and whether it is read-only."""
    claims = {one["name"]: (one.get("persistentVolumeClaim") or {}).get("claimName") for one in pod.get("volumes") or []}
    assert len(set(claims.values()) - {None}) == len([claim for claim in claims.values() if claim])
    mounts = [mount for container in pod["containers"] for mount in container.get("volumeMounts") or []]
    return {
        mount["mountPath"]: (claims[mount["name"]], mount.get("subPath", ""), bool(mount.get("readOnly")))
        for mount in mounts
        if claims.get(mount["name"])
    }


def variables(pod: dict[str, Any]) -> dict[str, str]:
    (container,) = pod["containers"]
    return {entry["name"]: entry.get("value", "") for entry in container["env"]}


@pytest.mark.parametrize("workspace", ["", "pvc://work"])
def test_each_initializer_mounts_its_claim_alone_and_read_only(workspace: str) -> None:
    pods = pods_of(workspace=workspace)
    data, model = claim_mounts(pods["dataset-initializer"]), claim_mounts(pods["model-initializer"])
    assert data["/mnt/claims/data"] == ("data", "", True)
    assert model["/mnt/claims/models"] == ("models", "", True)
    assert "/mnt/claims/models" not in data
    assert "/mnt/claims/data" not in model
    assert variables(pods["dataset-initializer"])["STORAGE_URI"] == SOURCES["dataset_uri"]
    assert variables(pods["dataset-initializer"])["TRAINWRIGHT_CLAIMS"] == "data=/mnt/claims/data"
    assert not any(path.startswith("/mnt/claims") for path in claim_mounts(pods["node"]))


def test_an_initializer_of_others_is_refused() -> None:
    runtime = bundled_runtime("trl-sft") or {}
    for job in runtime["spec"]["template"]["spec"]["replicatedJobs"]:
        for container in job["template"]["spec"]["template"]["spec"]["containers"]:
            if "initializer" in container["name"]:
                container["command"] = ["python", "-m", "pkg.initializers.dataset"]
    with pytest.raises(IncompatibleRuntime, match=r"dataset_uri: the initializer .* cannot read pvc://.*model_uri: "):
        pods_of(runtime)


def test_a_claim_is_found_where_it_is_mounted(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    environ = {"TRAINWRIGHT_CLAIMS": f"other=/nowhere,data={tmp_path / 'here'}"}
    assert mounted(StorageUri.parse("pvc://data/a b/c"), environ).path == tmp_path / "here/a b/c"
    assert mounted(StorageUri.parse("pvc://data"), environ).path == tmp_path / "here"
    assert mounted(StorageUri.parse("s3://bucket/key"), environ) == StorageUri.parse("s3://bucket/key")
    with pytest.raises(StorageError, match="pvc://other/x: the claim other is not mounted at /nowhere"):
        mounted(StorageUri.parse("pvc://other/x"), environ)
    with pytest.raises(StorageError, match="not mounted at /mnt/claims/third"):
        mounted(StorageUri.parse("pvc://third/x"), environ)
