"""A request together with its runtime, and what both decide: made once, by `resolve`, for submission, preview and dry run. Pure.

The replicated jobs of a runtime are its training steps and its initializers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from trainwright.api import names
from trainwright.api.objects import Obj, labels_of, named
from trainwright.jobs.code.code_package import PackedCode
from trainwright.jobs.request.train_request import TrainRequest
from trainwright.jobs.state.run_folder import Kind
from trainwright.jobs.trainers.builtin_trainers import BuiltinTrainer, Program

ANCESTOR_OF_KIND: dict[Kind, str] = {"dataset": names.ANCESTOR_DATASET, "model": names.ANCESTOR_MODEL}


@dataclass(frozen=True)
class ResolvedRequest:
    """`runtime` is the definition that the request names, `trainer` the builtin trainer with its `program`, `code` the packed code.

    `inputs` are the digests of the prepared inputs that are mounted from the workspace, see `mounted_inputs`.
    """

    request: TrainRequest
    runtime: Obj
    trainer: BuiltinTrainer | None = None
    program: Program | None = None
    inputs: dict[Kind, str] = field(default_factory=dict)
    code: PackedCode | None = None
    warnings: tuple[str, ...] = ()

    @property
    def nodes(self) -> int:
        """The number of training nodes: the request's, else the runtime's."""
        manifest = self.request.manifest
        given = manifest["spec"].get("trainer") or {} if manifest is not None else {}
        policy = self.runtime["spec"].get("mlPolicy") or {}
        return self.request.num_nodes or given.get("numNodes") or int(policy.get("numNodes") or 1)


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
