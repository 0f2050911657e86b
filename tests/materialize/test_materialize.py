"""Materialization as a function: pure, repeatable, and refusing before it builds."""

from __future__ import annotations

from typing import Any

import pytest
from factories import catalogue_runtime, trainjob

from trainwright.api.errors import Invalid
from trainwright.api.objects import copy_of
from trainwright.materialize import materialize


def env(container: dict[str, Any]) -> dict[str, Any]:
    return {entry["name"]: entry.get("value") for entry in container["env"]}


def test_the_same_input_gives_the_same_objects_and_stays_as_it_is() -> None:
    job, rt = trainjob(trainer={"numNodes": 2}), catalogue_runtime("torch-distributed")
    before = copy_of(job), copy_of(rt)
    assert materialize(job, rt) == materialize(job, rt)
    assert (job, rt) == before


def patch_of(job: str) -> dict[str, Any]:
    return {"template": {"spec": {"replicatedJobs": [{"name": job}]}}}


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"trainer": {"env": [{"name": "PET_NNODES", "value": "9"}]}}, "PET_NNODES"),
        ({"initializer": {"model": {"storageUri": "hf://a/b"}}}, "model-initializer"),
        ({"trainer": {"command": ["tune", "run"]}}, "supported pretrained model"),
        ({"runtimePatches": [{"manager": "a.b/c", "trainingRuntimeSpec": patch_of("nod")}]}, "'nod'"),
    ],
)
def test_invalid_trainjobs_are_refused(spec: dict[str, Any], words: str) -> None:
    with pytest.raises(Invalid, match=words):
        materialize(trainjob(**spec), catalogue_runtime("torch-distributed"))


def test_somebody_elses_trainjob_is_left_alone() -> None:
    assert materialize(trainjob(managedBy="kueue.x-k8s.io/multikueue"), catalogue_runtime("torch-distributed")) == []
