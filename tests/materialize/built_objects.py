"""MPI runtimes, and accessors to the objects that are built from a TrainJob and a runtime."""

from __future__ import annotations

from typing import Any

import pytest
from factories import replicated_job, runtime, trainjob

from trainwright.api.errors import Invalid
from trainwright.api.objects import named
from trainwright.materialize import materialize

Obj = dict[str, Any]


MPI_JOBS = (replicated_job("node"), replicated_job("launcher", step="trainer"))


def mpi(*jobs: Obj, **policy: Any) -> Obj:
    return runtime("rt", *(jobs or MPI_JOBS), policy={"mpi": {"runLauncherAsNode": True} | policy})


def of_kind(objects: list[Obj], kind: str) -> Obj:
    return next(obj for obj in objects if obj["kind"] == kind)


def replicated_job_of(objects: list[Obj], name: str) -> Obj:
    found = named(of_kind(objects, "JobSet")["spec"]["replicatedJobs"], name)
    assert found is not None
    return found


def pod_spec_of(objects: list[Obj], name: str = "node") -> Obj:
    spec: Obj = replicated_job_of(objects, name)["template"]["spec"]["template"]["spec"]
    return spec


def env(objects: list[Obj], name: str = "node") -> dict[str, Any]:
    return {entry["name"]: entry.get("value") for entry in pod_spec_of(objects, name)["containers"][0].get("env", [])}


def refused(trainer: Obj, rt: Obj, **spec: Any) -> set[str]:
    with pytest.raises(Invalid) as caught:
        materialize(trainjob(runtime=rt["metadata"]["name"], trainer=trainer, **spec), rt)
    return {problem.field for problem in caught.value.problems}
