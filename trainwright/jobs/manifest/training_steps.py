"""Distinguishes the training steps and the initializers among the replicated jobs of a runtime. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from trainwright.api import names
from trainwright.api.objects import Obj, labels_of, named
from trainwright.jobs.state.run_folder import Kind

ANCESTOR_OF_KIND: dict[Kind, str] = {"dataset": names.ANCESTOR_DATASET, "model": names.ANCESTOR_MODEL}


def replicated_jobs(runtime: Obj) -> list[Obj]:
    """Return all replicated jobs of a runtime."""
    jobs: list[Obj] = runtime["spec"]["template"]["spec"].get("replicatedJobs") or []
    return jobs


def pod_spec_of(job: Obj) -> Obj:
    """Return the pod spec of a replicated job."""
    spec: Obj = job["template"]["spec"]["template"]["spec"]
    return spec


def step_of_job(job: Obj) -> str:
    """Return the ancestor label of a replicated job; empty if it has none."""
    return labels_of(job.get("template") or {}).get(names.ANCESTOR_LABEL, "")


def is_initializer(job: Obj) -> bool:
    return step_of_job(job) in names.INITIALIZERS or job["name"] in names.INITIALIZERS


def training_jobs(runtime: Obj) -> Iterator[Obj]:
    """Yield the replicated jobs whose container `node` runs the training program."""
    for job in replicated_jobs(runtime):
        if not is_initializer(job) and named(pod_spec_of(job).get("containers"), names.NODE) is not None:
            yield job


def trainer_container(runtime: Obj) -> Obj | None:
    """Return the container to which a TrainJob's image, command and arguments apply: `node` of the step with ancestor `trainer`."""
    for job in replicated_jobs(runtime):
        if step_of_job(job) == names.ANCESTOR_TRAINER:
            return named(pod_spec_of(job).get("containers"), names.NODE)
    return None


def initializer_container(runtime: Obj, ancestor: str) -> Obj | None:
    """Return the container of a dataset or model initializer; None if the runtime has no such step."""
    for job in replicated_jobs(runtime):
        if step_of_job(job) == ancestor:
            return named(pod_spec_of(job).get("containers"), names.CONTAINER_OF_ANCESTOR[ancestor])
    return None
