"""Small TrainJobs and runtimes, and looking into what they become."""

from __future__ import annotations

from typing import Any

import pytest

from trainwright.api.errors import Invalid
from trainwright.api.objects import named
from trainwright.materialize import materialize

Obj = dict[str, Any]
STEP = {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}}


def trainjob(trainer: Obj | None = None, runtime: str = "rt", **spec: Any) -> Obj:
    spec = {"runtimeRef": {"name": runtime}, **spec} | ({} if trainer is None else {"trainer": trainer})
    metadata = {"name": "demo", "namespace": "ns"}
    return {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": metadata, "spec": spec}


def replicated(name: str, trained: bool, **pod: Any) -> Obj:
    pod_spec = {"containers": [{"name": "node", "image": "i:1"}]} | pod
    return {"name": name, "template": {"metadata": STEP if trained else {}, "spec": {"template": {"spec": pod_spec}}}}


def runtime(policy: Obj, *jobs: Obj, name: str = "rt", **more: Any) -> Obj:
    jobs = jobs or (replicated("node", True),)
    spec = {"mlPolicy": {"numNodes": 1} | policy, "template": {"spec": {"replicatedJobs": list(jobs)}}} | more
    metadata = {"name": name}
    return {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "ClusterTrainingRuntime", "metadata": metadata, "spec": spec}


MPI_JOBS = (replicated("node", False), replicated("launcher", True))


def mpi(*jobs: Obj, **policy: Any) -> Obj:
    return runtime({"mpi": {"runLauncherAsNode": True} | policy}, *(jobs or MPI_JOBS))


def of_kind(objects: list[Obj], kind: str) -> Obj:
    return next(obj for obj in objects if obj["kind"] == kind)


def job(objects: list[Obj], name: str) -> Obj:
    found = named(of_kind(objects, "JobSet")["spec"]["replicatedJobs"], name)
    assert found is not None
    return found


def pod(objects: list[Obj], name: str = "node") -> Obj:
    spec: Obj = job(objects, name)["template"]["spec"]["template"]["spec"]
    return spec


def env(objects: list[Obj], name: str = "node") -> dict[str, Any]:
    return {entry["name"]: entry.get("value") for entry in pod(objects, name)["containers"][0].get("env", [])}


def refused(trainer: Obj, rt: Obj, **spec: Any) -> set[str]:
    with pytest.raises(Invalid) as caught:
        materialize(trainjob(trainer, rt["metadata"]["name"], **spec), rt)
    return {problem.field for problem in caught.value.problems}
