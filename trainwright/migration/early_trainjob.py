"""TrainJobs of before Trainer 2.2: kubeflow.org/v2alpha1, and v1alpha1 with podTemplateOverrides or podSpecOverrides."""

from __future__ import annotations

import copy
from typing import Any

from trainwright.api.hub_names import is_bare_name
from trainwright.api.objects import Obj
from trainwright.migration.notes import Migrated, Notes
from trainwright.migration.replica_job import API_VERSION

OURS = ("TrainJob", "TrainingRuntime", "ClusterTrainingRuntime")
VERSIONS = (API_VERSION, "kubeflow.org/v2alpha1")
MANAGER = "trainwright.dev/migrate"
_TOP_TO_TRAINER = ("numNodes", "image", "command", "args", "env", "resourcesPerNode", "numProcPerNode")


def is_early(obj: Obj) -> bool:
    """Whether it is a TrainJob or a runtime in a form that today's Trainer refuses."""
    spec = obj.get("spec") or {}
    if obj.get("kind") not in OURS or obj.get("apiVersion") not in VERSIONS or not isinstance(spec, dict):
        return False
    if obj["apiVersion"] != API_VERSION:
        return True
    if obj.get("kind") == "TrainJob":
        processes = (spec.get("trainer") or {}).get("numProcPerNode")
        old = {"podTemplateOverrides", "podSpecOverrides", "labels", "annotations", "modelConfig", "datasetConfig"}
        return bool(old & set(spec)) or isinstance(processes, str) or _group(spec) == "kubeflow.org" or any(_bare(spec))
    torch = (spec.get("mlPolicy") or {}).get("torch") or {}
    return "numProcPerNode" in torch or "elasticPolicy" in torch


def migrate_early(obj: Obj) -> Migrated:
    """The same object in today's form. Never fails: what it does not know is left for admission to judge."""
    made, notes = copy.deepcopy(obj), Notes()
    made["apiVersion"] = API_VERSION
    if made.get("kind") == "TrainJob":
        _trainjob(made.setdefault("spec", {}), notes)
    else:
        _runtime(made.setdefault("spec", {}), notes)
    return Migrated([made], notes.notes)


def _trainjob(spec: Obj, notes: Notes) -> None:
    reference = spec.get("runtimeRef") or {}
    if _group(spec) == "kubeflow.org":
        reference["apiGroup"] = "trainer.kubeflow.org"
    _initializers(spec, notes)
    for field in _TOP_TO_TRAINER:
        if field in spec:
            spec.setdefault("trainer", {})[field] = spec.pop(field)
    _process_count(spec.get("trainer") or {}, "spec.trainer.numProcPerNode", notes)
    patch: Obj = {}
    metadata = {key: spec.pop(key) for key in ("labels", "annotations") if key in spec}
    if metadata:
        patch["metadata"] = metadata
        notes.add(f"spec.{next(iter(metadata))}", "became a runtimePatch of the JobSet's metadata")
    jobs = _overrides(spec, notes)
    if jobs:
        patch["spec"] = {"replicatedJobs": jobs}
    if patch:
        patches = spec.setdefault("runtimePatches", [])
        patches.append({"manager": MANAGER, "trainingRuntimeSpec": {"template": patch}})


def _initializers(spec: Obj, notes: Notes) -> None:
    dataset, model = spec.pop("datasetConfig", None), spec.pop("modelConfig", None)
    if dataset is not None:
        spec.setdefault("initializer", {})["dataset"] = dataset
    if model is not None:
        given = model.get("input") if "input" in model or "output" in model else model
        if given:
            spec.setdefault("initializer", {})["model"] = given
        if model.get("output"):
            notes.add(
                "spec.modelConfig.output",
                "is not kept: export the checkpoint with a pipeline, an operator or `trainwright export`",
            )
    for which in _bare(spec):
        initializer = spec["initializer"][which]
        initializer["storageUri"] = f"hf://{initializer['storageUri']}"
        notes.add(f"spec.initializer.{which}.storageUri", "a bare name is one of the Hugging Face Hub: hf:// was added")


def _bare(spec: Obj) -> list[str]:
    """The initializers whose storageUri is the bare name of a repository."""
    initializers = spec.get("initializer") or {}
    uris = {which: str((initializers.get(which) or {}).get("storageUri") or "") for which in ("dataset", "model")}
    return [which for which, uri in uris.items() if is_bare_name(uri)]


def _overrides(spec: Obj, notes: Notes) -> list[Obj]:
    """Overrides by target jobs as patches by replicated job; the later of two for the same job wins, as it did."""
    jobs: dict[str, Obj] = {}
    for field in ("podSpecOverrides", "podTemplateOverrides"):
        for number, override in enumerate(spec.pop(field, None) or []):
            template: Obj = (
                override.get("spec") or {}
                if field == "podTemplateOverrides"
                else {key: value for key, value in override.items() if key not in ("targetJobs", "metadata")}
            )
            pod: Obj = {"spec": copy.deepcopy(template)} if template else {}
            if override.get("metadata"):
                pod["metadata"] = override["metadata"]
            for target in override.get("targetJobs") or []:
                _merge(jobs.setdefault(target["name"], {}), pod)
            if not override.get("targetJobs"):
                notes.add(f"spec.{field}[{number}].targetJobs", "is missing: the override applied to nothing and was left out")
        if field == "podTemplateOverrides" and jobs:
            notes.add("spec.podTemplateOverrides", "became spec.runtimePatches")
    return [{"name": name, "template": {"spec": {"template": pod}}} for name, pod in jobs.items()]


def _merge(into: Obj, more: Obj) -> None:
    for key, value in more.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = copy.deepcopy(value)


def _runtime(spec: Obj, notes: Notes) -> None:
    torch: Any = (spec.get("mlPolicy") or {}).get("torch")
    if not isinstance(torch, dict):
        return
    _process_count(torch, "spec.mlPolicy.torch.numProcPerNode", notes, keep=False)
    if torch.pop("elasticPolicy", None) is not None:
        notes.add("spec.mlPolicy.torch.elasticPolicy", "is not kept: it never had an effect; the number of nodes is fixed")


def _process_count(holder: Obj, path: str, notes: Notes, *, keep: bool = True) -> None:
    """`auto`, `cpu` and `gpu` are what the torch policy does without a number; a runtime has no number any more."""
    given = holder.get("numProcPerNode")
    if given is None or (keep and isinstance(given, int)):
        return
    if keep and str(given).isdecimal():
        holder["numProcPerNode"] = int(given)
        return
    del holder["numProcPerNode"]
    if str(given) == "auto":
        notes.add(path, "auto was left out: it is what happens without a number")
    elif keep or str(given) in ("cpu", "gpu"):
        notes.add(path, f"{given} was left out: processes are counted by the node's GPUs, else its CPUs")
    else:
        notes.add(path, f"{given} is not kept: set spec.trainer.numProcPerNode in the TrainJob")


def _group(spec: Obj) -> str:
    return str((spec.get("runtimeRef") or {}).get("apiGroup") or "")
