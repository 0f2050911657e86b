"""TrainJobs and runtimes of before Trainer 2.2: kubeflow.org/v2alpha1, and v1alpha1 with overrides in place of patches.

What comes out is admitted; what has no form today is refused by its field.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from trainwright.api import admit, names
from trainwright.api.errors import Invalid, Problem
from trainwright.api.hub_names import is_bare_name
from trainwright.api.objects import Obj
from trainwright.api.shape_check import findings
from trainwright.migration.early_runtime import (
    DATASET,
    INITIALIZER,
    LAUNCHER,
    MODEL,
    OLD_CONTAINERS,
    TRAINER_NODE,
    migrate_runtime,
    process_count,
)
from trainwright.migration.early_shapes import EARLY_RUNTIME, EARLY_TRAINJOB
from trainwright.migration.notes import Migrated, Notes
from trainwright.migration.old_shapes import without_nulls
from trainwright.migration.replica_job import API_VERSION

OURS = ("TrainJob", "TrainingRuntime", "ClusterTrainingRuntime")
ALPHA = "kubeflow.org/v2alpha1"
VERSIONS = (API_VERSION, ALPHA)
MANAGER = "trainwright.dev/migrate"
_TOP_TO_TRAINER = ("numNodes", "image", "command", "args", "env", "resourcesPerNode", "numProcPerNode")
_OLD_GROUP = "kubeflow.org"
_OLD_CONTROLLER = "kubeflow.org/trainjob-controller"
_PATCHABLE = ("name", "env", "volumeMounts", "securityContext")
"""Fields of a container that a runtimePatch can change."""
_STEP_OF_CONTAINER = {names.NODE: ("trainer",), DATASET: ("initializer", "dataset"), MODEL: ("initializer", "model")}
_CONTAINER_LISTS = ("containers", "initContainers")


def is_early(obj: Obj) -> bool:
    """Whether it is a TrainJob or a runtime in a form that today's Trainer refuses."""
    spec = obj.get("spec")
    if obj.get("kind") not in OURS or obj.get("apiVersion") not in VERSIONS:
        return False
    if obj["apiVersion"] == ALPHA:
        return True
    if not isinstance(spec, dict):
        return False
    if obj["kind"] == "TrainJob":
        processes = _map(spec.get("trainer")).get("numProcPerNode")
        old = {"podTemplateOverrides", "podSpecOverrides", "labels", "annotations", "modelConfig", "datasetConfig"}
        return bool(old & set(spec)) or isinstance(processes, str) or _group(spec) == _OLD_GROUP or any(_bare(spec))
    torch = _map(_map(spec.get("mlPolicy")).get("torch"))
    return "numProcPerNode" in torch or "elasticPolicy" in torch


def migrate_early(obj: Obj) -> Migrated:
    """The same object in today's form, which admission takes. Raises Invalid with the fields that have none, BadRequest."""
    made, notes = without_nulls(obj), Notes()
    is_alpha = made["apiVersion"] == ALPHA
    is_trainjob = made["kind"] == "TrainJob"
    problems = findings(EARLY_TRAINJOB if is_trainjob else EARLY_RUNTIME, made).all()
    if not problems:
        made["apiVersion"] = API_VERSION
        made.pop("status", None)
        spec = made["spec"]
        problems = list(_trainjob(spec, notes, is_alpha)) if is_trainjob else migrate_runtime(spec, notes, by_name=is_alpha)
    if problems:
        raise Invalid(f"{made['kind']} cannot be migrated", problems=problems)
    admit(_with_name(made))
    return Migrated([made], notes.notes)


def _with_name(obj: Obj) -> Obj:
    """The object with a name to judge it by: whoever submits it may give it one later."""
    metadata = obj.get("metadata") or {}
    return obj if metadata.get("name") or metadata.get("generateName") else {**obj, "metadata": {**metadata, "name": "migrated"}}


def _trainjob(spec: Obj, notes: Notes, is_alpha: bool) -> Iterator[Problem]:
    """Change the spec into today's form; the problems are of what cannot be."""
    yield from _moved(spec, "trainingRuntimeRef", spec, "runtimeRef", "spec.runtimeRef")
    if _group(spec) == _OLD_GROUP:
        spec["runtimeRef"]["apiGroup"] = "trainer.kubeflow.org"
    if spec.get("managedBy") == _OLD_CONTROLLER:
        spec["managedBy"] = names.TRAINJOB_CONTROLLER
    yield from _initializers(spec, notes)
    for field in _TOP_TO_TRAINER:
        if field in spec:
            yield from _moved(spec, field, spec.setdefault("trainer", {}), field, f"spec.trainer.{field}")
    process_count(spec.get("trainer") or {}, "spec.trainer.numProcPerNode", notes)
    patch: Obj = {}
    metadata = {key: spec.pop(key) for key in ("labels", "annotations") if key in spec}
    if metadata:
        patch["metadata"] = metadata
        notes.add(f"spec.{next(iter(metadata))}", "became a runtimePatch of the JobSet's metadata")
    yield from _unpatchable(spec)
    jobs = _overrides(spec, notes, is_alpha)
    if jobs:
        patch["spec"] = {"replicatedJobs": jobs}
    if patch:
        patches = spec.setdefault("runtimePatches", [])
        patches.append({"manager": MANAGER, "trainingRuntimeSpec": {"template": patch}})


def _moved(source: Obj, field: str, target: Obj, name: str, path: str) -> Iterator[Problem]:
    """Move a field unless its place is taken."""
    if field not in source:
        return
    if name in target:
        yield Problem(f"spec.{field}", f"Invalid value: {path} is given too; keep one of them")
        return
    target[name] = source.pop(field)


def _initializers(spec: Obj, notes: Notes) -> Iterator[Problem]:
    model = spec.get("modelConfig") or {}
    if "input" in model or "output" in model:
        spec["modelConfig"] = model.get("input")
        if model.get("output"):
            notes.add(
                "spec.modelConfig.output",
                "is not kept: export the checkpoint with a pipeline, an operator or `trainwright export`",
            )
    for field, which in (("datasetConfig", "dataset"), ("modelConfig", "model")):
        if not spec.get(field):
            spec.pop(field, None)
            continue
        yield from _moved(spec, field, spec.setdefault("initializer", {}), which, f"spec.initializer.{which}")
        secret = _map(_map(spec["initializer"].get(which)).get("secretRef"))
        if secret.pop("namespace", None) is not None:
            notes.add(f"spec.{field}.secretRef.namespace", "is not kept: the Secret is one of the TrainJob's namespace")
    for which in _bare(spec):
        initializer = spec["initializer"][which]
        initializer["storageUri"] = f"hf://{initializer['storageUri']}"
        notes.add(f"spec.initializer.{which}.storageUri", "a bare name is one of the Hugging Face Hub: hf:// was added")


def _bare(spec: Obj) -> list[str]:
    """The initializers whose storageUri is the bare name of a repository."""
    initializers = _map(spec.get("initializer"))
    uris = {which: str(_map(initializers.get(which)).get("storageUri") or "") for which in ("dataset", "model")}
    return [which for which, uri in uris.items() if is_bare_name(uri)]


def _unpatchable(spec: Obj) -> Iterator[Problem]:
    """Overrides of containers could change more than patches can."""
    for field in ("podSpecOverrides", "podTemplateOverrides"):
        for number, override in enumerate(spec.get(field) or []):
            pod, path = override, f"spec.{field}[{number}]"
            if field == "podTemplateOverrides":
                pod, path = override.get("spec") or {}, f"{path}.spec"
            for kind in _CONTAINER_LISTS:
                for place, container in enumerate(pod.get(kind) or []):
                    for key in container:
                        if key not in _PATCHABLE:
                            message = f"Forbidden: a patch cannot change it; set spec.trainer.{key}, or change the runtime"
                            yield Problem(f"{path}.{kind}[{place}].{key}", message, "FieldValueForbidden")


def _overrides(spec: Obj, notes: Notes, is_alpha: bool) -> list[Obj]:
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
                for name, part in _targets(target["name"], pod) if is_alpha else [(target["name"], copy.deepcopy(pod))]:
                    if _take_variables(spec, part):
                        notes.add(f"spec.{field}[{number}]", "variables of a step's container became the step's own env")
                    if part:
                        _merge(jobs.setdefault(name, {}), part)
            if not override.get("targetJobs"):
                notes.add(f"spec.{field}[{number}].targetJobs", "is missing: the override applied to nothing and was left out")
        if field == "podTemplateOverrides" and jobs:
            notes.add("spec.podTemplateOverrides", "became spec.runtimePatches")
    return [{"name": name, "template": {"spec": {"template": pod}}} for name, pod in jobs.items()]


def _targets(job: str, pod: Obj) -> list[tuple[str, Obj]]:
    """The jobs that a job of v2alpha1 became, each with the part of the override that is about it."""
    part = copy.deepcopy(pod)
    if job.lower() in (TRAINER_NODE, LAUNCHER):
        for container in _map(part.get("spec")).get("containers") or []:
            container["name"] = names.NODE if container["name"] in OLD_CONTAINERS else container["name"]
        return [(LAUNCHER if job.lower() == LAUNCHER else names.NODE, part)]
    if job.lower() != INITIALIZER:
        return [(job, part)]
    parts = []
    containers = _map(pod.get("spec")).get("containers") or []
    for step, other in ((DATASET, MODEL), (MODEL, DATASET)):
        part = copy.deepcopy(pod)
        if containers:
            own = [container for container in containers if container["name"] != other]
            part["spec"]["containers"] = copy.deepcopy(own)
        parts.append((step, part))
    return parts


def _take_variables(spec: Obj, pod: Obj) -> bool:
    """Move variables of the steps' own containers to where a TrainJob sets them: patches may not. Returns whether there were any."""
    template = _map(pod.get("spec"))
    moved, kept = False, []
    for container in template.get("containers") or []:
        holders = _STEP_OF_CONTAINER.get(container["name"])
        if holders and isinstance(container.get("env"), list):
            holder = spec
            for field in holders:
                holder = holder.setdefault(field, {})
            own = {_map(entry).get("name") for entry in container["env"]}
            others = [entry for entry in holder.get("env") or [] if _map(entry).get("name") not in own]
            holder["env"] = [*others, *container.pop("env")]
            moved = True
        if len(container) > 1:
            kept.append(container)
    if "containers" in template:
        template["containers"] = kept
        if not kept:
            del template["containers"]
    if "spec" in pod and not template:
        del pod["spec"]
    return moved


def _merge(into: Obj, more: Obj) -> None:
    for key, value in more.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = copy.deepcopy(value)


def _group(spec: Obj) -> str:
    return str(_map(spec.get("runtimeRef")).get("apiGroup") or "")


def _map(value: Any) -> Obj:
    """The value where it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}
