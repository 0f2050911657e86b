"""Where a workspace is mounted, container by container, in the JobSet that a request comes to."""

from __future__ import annotations

from typing import Any

import pytest
from factories import train_request

from trainwright.api.admission.admit import AdmissionContext, admit
from trainwright.jobs import Identity
from trainwright.jobs.manifest.trainjob_manifest import trainjob_manifest
from trainwright.jobs.submit.resolve import IncompatibleRuntime, resolve
from trainwright.materialize import materialize
from trainwright.runtimes import bundled_runtime

STEP = Identity("kfp", "run", "train")
DATASET, MODEL = "sha256:" + "a" * 64, "sha256:" + "b" * 64
Mount = tuple[str, str, str, bool]
RUN = ("/workspace", "claim", "team/runs/run", False)
DATA = ("/workspace/dataset", "claim", f"team/datasets/{'a' * 64}", True)
BASE = ("/workspace/model", "claim", f"team/models/{'b' * 64}", True)
LINKED = [(f"/workspace/{kind}", "claim", f"team/runs/run/{kind}", True) for kind in ("dataset", "model")]
"""What the initializers of the job itself have linked from the shared folders: hard links, so read-only."""
SHARED = ("/trainwright-workspace", "claim", "team", False)


def jobset_of(runtime: str, **fields: Any) -> dict[str, Any]:
    """The admitted JobSet of an admitted TrainJob."""
    definition = bundled_runtime(runtime) or {}
    request = train_request(runtime=runtime, **{"workspace": "pvc://claim/team", **fields})
    resolve(request, definition)
    trainjob = trainjob_manifest(resolve(request, definition), STEP, "default")
    admit(trainjob, context=AdmissionContext(strictness="Strict"))
    jobset = materialize(trainjob, definition)[-1]
    admit(jobset, context=AdmissionContext(strictness="Strict"))
    return jobset


def mounts_of(jobset: dict[str, Any]) -> dict[str, set[Mount]]:
    """`job/container` to path, claim, folder and whether it is read only, of the mounts of claims."""
    found: dict[str, set[Mount]] = {}
    for job in jobset["spec"]["replicatedJobs"]:
        pod = job["template"]["spec"]["template"]["spec"]
        volumes = [volume["name"] for volume in pod.get("volumes") or []]
        assert len(volumes) == len(set(volumes))
        claims = {one["name"]: (one.get("persistentVolumeClaim") or {}).get("claimName", "") for one in pod.get("volumes") or []}
        named = [claim for claim in claims.values() if claim]
        assert len(named) == len(set(named)), "a pod with two volumes of one claim never starts on Kubernetes 1.34"
        for container in [*(pod.get("initContainers") or []), *pod["containers"]]:
            mounts = container.get("volumeMounts") or []
            paths = [mount["mountPath"] for mount in mounts]
            assert len(paths) == len(set(paths))
            assert not any("subPath" in mount and "subPathExpr" in mount for mount in mounts)
            found[f"{job['name']}/{container['name']}"] = {
                (
                    one["mountPath"],
                    claims[one["name"]],
                    one.get("subPath") or one.get("subPathExpr") or "",
                    bool(one.get("readOnly")),
                )
                for one in mounts
                if claims.get(one["name"])
            }
    return found


def test_sft_that_prepares_its_inputs() -> None:
    assert mounts_of(jobset_of("trl-sft", dataset_uri="hf://a/b", model_uri="hf://a/b")) == {
        "dataset-initializer/dataset-initializer": {RUN, SHARED},
        "model-initializer/model-initializer": {RUN, SHARED},
        "node/resume-point": {RUN, *LINKED},
        "node/node": {RUN, *LINKED},
    }


def test_sft_on_prepared_inputs() -> None:
    found = mounts_of(jobset_of("trl-sft", dataset_digest=DATASET, model_digest=MODEL))
    assert all(mounts == {RUN, DATA, BASE} for mounts in found.values())
    assert set(found) == {
        "dataset-initializer/dataset-initializer",
        "model-initializer/model-initializer",
        "node/resume-point",
        "node/node",
    }


def test_sft_on_one_prepared_input() -> None:
    assert mounts_of(jobset_of("trl-sft", dataset_digest=DATASET, model_uri="hf://a/b")) == {
        "dataset-initializer/dataset-initializer": {RUN, DATA},
        "model-initializer/model-initializer": {RUN, DATA, SHARED},
        "node/resume-point": {RUN, DATA, LINKED[1]},
        "node/node": {RUN, DATA, LINKED[1]},
    }


@pytest.mark.parametrize("digests", [{}, {"dataset_digest": DATASET, "model_digest": MODEL}])
def test_a_runtime_with_a_claim_of_its_own_takes_no_other(digests: dict[str, str]) -> None:
    """JobSet refuses a volume of the name of a claim template, and a template that no container mounts."""
    with pytest.raises(IncompatibleRuntime, match="workspace: the runtime creates its own claim for each job"):
        jobset_of("torchtune-llama3.2-1b", **digests)
    assert mounts_of(jobset_of("torchtune-llama3.2-1b", workspace=""))["node/node"] == set()


def test_an_export_on_the_claim_of_the_workspace_is_read_through_its_volume() -> None:
    source = ("/resume-source", "claim", "", True)
    own = mounts_of(jobset_of("trl-sft", resume="pvc://claim/exports", dataset_digest=DATASET))
    assert own["node/resume-point"] == {RUN, DATA, source}
    assert own["node/node"] == {RUN, DATA}
    other = mounts_of(jobset_of("trl-sft", resume="pvc://other/exports"))
    assert other["node/resume-point"] == {RUN, ("/resume-source", "other", "", True)}


def test_a_runtime_with_no_place_for_it_is_refused() -> None:
    definition = bundled_runtime("torch-distributed") or {}
    (job,) = definition["spec"]["template"]["spec"]["replicatedJobs"]
    job["template"]["spec"]["template"]["spec"]["containers"][0]["name"] = "main"
    with pytest.raises(IncompatibleRuntime, match="workspace: no step of the runtime mounts the volume 'initializer', or has a"):
        resolve(train_request(runtime="torch-distributed", command=["a"], workspace="pvc://claim"), definition)
