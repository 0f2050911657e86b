"""A volume of two types is refused before anything is sent: the API server would refuse it only when the Job is created."""

from __future__ import annotations

from typing import Any

import pytest
from factories import job, train_request, trainjob

from trainwright.api.admission.admit import AdmissionContext, admit
from trainwright.api.errors import Invalid
from trainwright.api.objects import copy_of
from trainwright.jobs import Identity, IncompatibleRuntime
from trainwright.jobs.manifest.resolved_request import ResolvedRequest
from trainwright.jobs.manifest.trainjob_manifest import trainjob_manifest
from trainwright.jobs.submit.resolve import resolve
from trainwright.materialize import materialize
from trainwright.runtimes import bundled_runtime

STEP = Identity("kfp", "run", "train")
WORKSPACE = "pvc://claim?size=1Gi"


def runtime_with(*volumes: dict[str, Any], name: str = "torch-distributed") -> dict[str, Any]:
    """A runtime whose training pods have these volumes and mount the first at /scratch."""
    runtime = copy_of(bundled_runtime("torch-distributed") or {})
    runtime["metadata"]["name"] = name
    for each in runtime["spec"]["template"]["spec"]["replicatedJobs"]:
        pod = each["template"]["spec"]["template"]["spec"]
        pod["volumes"] = list(volumes)
        for container in pod["containers"] if volumes else []:
            container["volumeMounts"] = [{"name": volumes[0]["name"], "mountPath": "/scratch"}]
    return runtime


def patch(*volumes: dict[str, Any]) -> dict[str, Any]:
    jobs = [{"name": "node", "template": {"spec": {"template": {"spec": {"volumes": list(volumes)}}}}}]
    return {"manager": "example.com/me", "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}}


def manifest(*patches: dict[str, Any]) -> dict[str, Any]:
    return trainjob(namespace="", script="true", runtimePatches=list(patches))


EMPTY = {"name": "initializer", "emptyDir": {}}
CONFIG = {"name": "initializer", "configMap": {"name": "c"}}


@pytest.mark.parametrize(
    ("runtime", "fields", "field", "words"),
    [
        (
            runtime_with(EMPTY),
            {"workspace": WORKSPACE},
            "workspace",
            "the runtime 'torch-distributed' has emptyDir, and the works",
        ),
        (
            runtime_with(CONFIG),
            {"workspace": WORKSPACE},
            "workspace",
            "the runtime 'torch-distributed' has configMap, and the wo",
        ),
        (
            runtime_with(),
            {"workspace": WORKSPACE, "runtime_patches": [patch(EMPTY)]},
            "workspace",
            "runtime_patches[0] has emptyDir, and the workspace is a persistentVolumeClaim",
        ),
        (
            runtime_with(),
            {"workspace": WORKSPACE, "manifest": manifest(patch(CONFIG)), "runtime": "", "command": []},
            "workspace",
            "spec.runtimePatches[0] of the manifest has configMap, and the workspace is a persistentVolumeClaim",
        ),
        (
            runtime_with({"name": "cache", "persistentVolumeClaim": {"claimName": "c"}}),
            {"runtime_patches": [patch({"name": "cache", "emptyDir": {}})]},
            "placement.runtime_patches",
            "the runtime 'torch-distributed' has persistentVolumeClaim, and runtime_patches[0] has emptyDir",
        ),
        (
            runtime_with(EMPTY),
            {"manifest": manifest(patch(CONFIG)), "runtime": "", "command": []},
            "manifest",
            "the runtime 'torch-distributed' has emptyDir, and spec.runtimePatches[0] of the manifest has configMap",
        ),
    ],
)
def test_two_types_are_refused_and_both_are_named(runtime: Any, fields: Any, field: str, words: str) -> None:
    request = train_request(**{"runtime": "torch-distributed", "command": ["true"], **fields})
    with pytest.raises(IncompatibleRuntime) as raised:
        resolve(request, runtime)
    (problem,) = raised.value.problems
    assert problem.field == field
    assert words in problem.message
    assert "'torch-distributed'" in problem.message
    assert "rename it" in problem.message
    made = materialize(trainjob_manifest(ResolvedRequest(request, runtime), STEP, "default"), runtime)[-1]
    with pytest.raises(Invalid, match="may not specify more than 1 volume type"):  # what the API server says, later
        admit(job_of(made), context=AdmissionContext(strictness="Strict"))


def job_of(jobset: dict[str, Any]) -> dict[str, Any]:
    """The Job that JobSet creates from the last replicated job."""
    spec = copy_of(jobset["spec"]["replicatedJobs"][-1]["template"]["spec"])
    spec["template"]["spec"].setdefault("restartPolicy", "OnFailure")  # as JobSet does
    return job(**spec)
