"""Migrates runtimes of before Trainer 2.2. In kubeflow.org/v2alpha1 steps were identified by job and container names.

Now a step is a job with a label and a container with a fixed name, and host names contain the job name `node`. So jobs and
containers are renamed, and the job that prepared both dataset and model is split into two. The schemas have the fields that the
migration reads; admission validates the result. Source: the types of kubeflow.org/v2alpha1, and of trainer.kubeflow.org/v1alpha1 in
Trainer 2.0 and 2.1.
"""

from __future__ import annotations

import copy
import json
from typing import Any

from trainwright.api import names
from trainwright.api.errors import Problem
from trainwright.api.objects import Obj, named
from trainwright.api.schema.types import INT_OR_STRING, STRING, STRING_MAP, Integer, ListOf, Schema, String, Struct
from trainwright.migration.notes import Notes

INITIALIZER, TRAINER_NODE, LAUNCHER = "initializer", "trainer-node", "launcher"
DATASET, MODEL = "dataset-initializer", "model-initializer"
OLD_CONTAINERS = ("trainer", LAUNCHER)
"""Former names of the container `node`."""
_JOBS = "spec.template.spec.replicatedJobs"
_NAME = String(1)
_METADATA = Struct({"name": STRING, "generateName": STRING, "namespace": STRING}, open=True)
_REFERENCE = Struct({"name": _NAME, "apiGroup": STRING, "kind": STRING}, open=True)
_SOURCE = Struct({"storageUri": STRING, "secretRef": Struct({"name": STRING, "namespace": STRING}, open=True)}, open=True)
_CONTAINERS = ListOf(Struct({"name": _NAME}, ("name",), open=True))
_POD_OVERRIDE: dict[str, Schema] = {"containers": _CONTAINERS, "initContainers": _CONTAINERS}
_TARGETS: dict[str, Schema] = {
    "targetJobs": ListOf(Struct({"name": _NAME}, ("name",), open=True)),
    "metadata": Struct(open=True),
}
_TRAINER: dict[str, Schema] = {
    "numNodes": Integer(),
    "numProcPerNode": INT_OR_STRING,
}
LEGACY_TRAINJOB = Struct(
    {
        "metadata": _METADATA,
        "spec": Struct(
            {
                **_TRAINER,
                "runtimeRef": _REFERENCE,
                "trainingRuntimeRef": _REFERENCE,
                "trainer": Struct(_TRAINER, open=True),
                "datasetConfig": _SOURCE,
                "modelConfig": Struct({**_SOURCE.fields, "input": _SOURCE, "output": Struct(open=True)}, open=True),
                "initializer": Struct({"dataset": _SOURCE, "model": _SOURCE}, open=True),
                "podSpecOverrides": ListOf(Struct({**_TARGETS, **_POD_OVERRIDE}, open=True)),
                "podTemplateOverrides": ListOf(Struct({**_TARGETS, "spec": Struct(_POD_OVERRIDE, open=True)}, open=True)),
                "labels": STRING_MAP,
                "annotations": STRING_MAP,
                "managedBy": STRING,
                "runtimePatches": ListOf(Struct(open=True)),
            },
            open=True,
        ),
    },
    ("spec",),
    open=True,
)
_POD = Struct(
    {"metadata": Struct(open=True), "spec": Struct({"containers": _CONTAINERS, "initContainers": _CONTAINERS}, open=True)},
    ("spec",),
    open=True,
)
_JOB = Struct(
    {
        "metadata": Struct({"labels": STRING_MAP}, open=True),
        "spec": Struct({"template": _POD}, ("template",), open=True),
    },
    ("spec",),
    open=True,
)
_NAMES = ListOf(STRING)
_JOBSET = Struct(
    {
        "replicatedJobs": ListOf(
            Struct(
                {"name": _NAME, "template": _JOB, "dependsOn": ListOf(Struct({"name": STRING}, ("name",), open=True))},
                ("name", "template"),
                open=True,
            )
        ),
        "successPolicy": Struct({"targetReplicatedJobs": _NAMES}, open=True),
        "failurePolicy": Struct({"rules": ListOf(Struct({"targetReplicatedJobs": _NAMES}, open=True))}, open=True),
        "coordinator": Struct({"replicatedJob": STRING}, open=True),
    },
    open=True,
)
LEGACY_RUNTIME = Struct(
    {
        "metadata": _METADATA,
        "spec": Struct(
            {
                "mlPolicy": Struct(
                    {
                        "torch": Struct({"numProcPerNode": INT_OR_STRING, "elasticPolicy": Struct(open=True)}, open=True),
                        "mpi": Struct(open=True),
                    },
                    open=True,
                ),
                "template": Struct({"metadata": Struct(open=True), "spec": _JOBSET}, open=True),
            },
            open=True,
        ),
    },
    ("spec",),
    open=True,
)


def migrate_runtime(spec: Obj, notes: Notes, *, by_name: bool) -> list[Problem]:
    """Migrate the spec in place. Returns problems. `by_name`: steps are identified by name, as in v2alpha1."""
    torch = (spec.get("mlPolicy") or {}).get("torch") or {}
    process_count(torch, "spec.mlPolicy.torch.numProcPerNode", notes, keep=False)
    if torch.pop("elasticPolicy", None) is not None:
        notes.add("spec.mlPolicy.torch.elasticPolicy", "is not kept: it never had an effect; the number of nodes is fixed")
    jobset: Obj = (spec.get("template") or {}).get("spec") or {}
    return _convert_steps(jobset, notes) if by_name and jobset.get("replicatedJobs") else []


def process_count(holder: Obj, path: str, notes: Notes, *, keep: bool = True) -> None:
    """Migrate numProcPerNode. `auto`, `cpu` and `gpu` are the default of the torch policy; a runtime has no number any more."""
    given = holder.get("numProcPerNode")
    if given is None or (keep and isinstance(given, int)):
        return
    if keep and str(given).isdecimal():
        holder["numProcPerNode"] = int(given)
        return
    del holder["numProcPerNode"]
    if str(given) == "auto":
        notes.add(path, "auto was removed: it is the default")
    elif keep or str(given) in ("cpu", "gpu"):
        notes.add(path, f"{given} was removed: by default there is one process per GPU of the node, else per CPU")
    else:
        notes.add(path, f"{given} is not kept: set spec.trainer.numProcPerNode in the TrainJob")


def _convert_steps(jobset: Obj, notes: Notes) -> list[Problem]:
    """Label and rename the jobs that were identified by name, and update all references to them."""
    given: list[Obj] = jobset["replicatedJobs"]
    has_launcher = any(job["name"] == LAUNCHER for job in given)
    problems: list[Problem] = []
    new_jobs: list[Obj] = []
    renamed: dict[str, list[str]] = {}
    for index, job in enumerate(given):
        jobs = _convert_step(job, f"{_JOBS}[{index}]", problems, has_launcher=has_launcher)
        renamed[job["name"]] = [new["name"] for new in jobs]
        new_jobs += jobs
        if [job["name"]] != renamed[job["name"]]:
            notes.add(f"{_JOBS}[{index}].name", f"{job['name']} became {' and '.join(renamed[job['name']])}")
    for number, new in enumerate(new_jobs):
        if any(new["name"] == other["name"] for other in new_jobs[:number]):
            problems.append(Problem(_JOBS, f"Duplicate value: two jobs would be named {new['name']!r}; rename one of them"))
    jobset["replicatedJobs"] = new_jobs
    _rename_references(jobset, renamed, notes)
    if not any(
        (job["template"].get("metadata") or {}).get("labels", {}).get(names.ANCESTOR_LABEL) == "trainer" for job in new_jobs
    ):
        notes.add(_JOBS, f"no job is named {TRAINER_NODE}: spec.trainer of a TrainJob has no effect on this runtime")
    return problems


def _convert_step(job: Obj, path: str, problems: list[Problem], *, has_launcher: bool) -> list[Obj]:
    """Convert one job; the initializer of both dataset and model becomes two jobs."""
    labels = (job["template"].get("metadata") or {}).get("labels") or {}
    known = job["name"].lower()
    if names.ANCESTOR_LABEL in labels:
        return [job]
    if known in (INITIALIZER, DATASET, MODEL):
        return _convert_initializers(job, path, problems)
    if known in (TRAINER_NODE, names.NODE, LAUNCHER):
        # With MPI, spec.trainer of a TrainJob applies to the launcher; the nodes only wait for it.
        is_trainer = known == LAUNCHER or not has_launcher
        new = _with_label(job, names.ANCESTOR_TRAINER if is_trainer else "", LAUNCHER if known == LAUNCHER else names.NODE)
        _rename_container(new, path, problems)
        return [new]
    return [job]


def _convert_initializers(job: Obj, path: str, problems: list[Problem]) -> list[Obj]:
    containers = _pod(job).get("containers") or []
    present = [step for step in (DATASET, MODEL) if named(containers, step) is not None]
    others = [container["name"] for container in containers if container["name"] not in present]
    where = f"{path}.template.spec.template.spec.containers"
    if not present:
        problems.append(Problem(where, f"Invalid value: an initializer needs a container named {DATASET} or {MODEL}"))
        return [job]
    if len(present) == 2 and others:
        problems.append(
            Problem(where, f"Invalid value: dataset and model are now two jobs, and {others[0]!r} cannot be in both; move it")
        )
        return [job]
    new_jobs = []
    for step in present:
        new = _with_label(job, step, step)
        if len(present) == 2:
            _pod(new)["containers"] = [container for container in _pod(new)["containers"] if container["name"] == step]
        new_jobs.append(new)
    return new_jobs


def _with_label(job: Obj, step: str, name: str) -> Obj:
    new = copy.deepcopy(job)
    new["name"] = name
    if step:
        metadata = new["template"].setdefault("metadata", {})
        metadata["labels"] = {**(metadata.get("labels") or {}), names.ANCESTOR_LABEL: step}
    return new


def _rename_container(job: Obj, path: str, problems: list[Problem]) -> None:
    """Rename the training container to `node`."""
    containers = _pod(job).get("containers") or []
    if named(containers, names.NODE) is not None:
        return
    old = next((container for container in containers if container["name"] in OLD_CONTAINERS), None)
    if old is None:
        where = f"{path}.template.spec.template.spec.containers"
        problems.append(Problem(where, f"Invalid value: there is no container named {' or '.join(OLD_CONTAINERS)}"))
        return
    old["name"] = names.NODE


def _rename_references(jobset: Obj, renamed: dict[str, list[str]], notes: Notes) -> None:
    """Update job names in dependencies, policies and the coordinator."""

    def new_names(old: list[str]) -> list[str]:
        return [new for name in old for new in renamed.get(name, [name])]

    for job in jobset["replicatedJobs"]:
        if job.get("dependsOn"):
            job["dependsOn"] = [{**entry, "name": name} for entry in job["dependsOn"] for name in new_names([entry["name"]])]
    policies = [jobset.get("successPolicy") or {}, *((jobset.get("failurePolicy") or {}).get("rules") or [])]
    for policy in policies:
        if policy.get("targetReplicatedJobs"):
            policy["targetReplicatedJobs"] = new_names(policy["targetReplicatedJobs"])
    coordinator = jobset.get("coordinator") or {}
    if coordinator.get("replicatedJob"):
        coordinator["replicatedJob"] = new_names([coordinator["replicatedJob"]])[0]
    if f"{TRAINER_NODE}-" in json.dumps(jobset, default=str):
        notes.add(_JOBS, f"a text contains {TRAINER_NODE}-: host names now contain {names.NODE}- instead; change it")


def _pod(job: Obj) -> Obj:
    pod: Any = job["template"]["spec"]["template"]["spec"]
    return pod if isinstance(pod, dict) else {}
