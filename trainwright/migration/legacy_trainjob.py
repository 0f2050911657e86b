"""Migrates TrainJobs and runtimes of before Trainer 2.2: kubeflow.org/v2alpha1, and v1alpha1 with overrides instead of patches.

The result passes admission. Fields that cannot be migrated are reported as problems.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from trainwright.api import names
from trainwright.api.admission.admit import admit
from trainwright.api.errors import Invalid, Problem
from trainwright.api.objects import Obj
from trainwright.api.schema.check import findings
from trainwright.migration.legacy_runtime import (
    DATASET,
    INITIALIZER,
    LAUNCHER,
    LEGACY_RUNTIME,
    LEGACY_TRAINJOB,
    MODEL,
    OLD_CONTAINERS,
    TRAINER_NODE,
    migrate_runtime,
    process_count,
)
from trainwright.migration.new_objects import API_VERSION
from trainwright.migration.notes import MigrationResult, Notes
from trainwright.migration.replica_job import without_nulls
from trainwright.text.hub_names import is_bare_name

TRAINER_KINDS = ("TrainJob", "TrainingRuntime", "ClusterTrainingRuntime")
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


def is_legacy(obj: Obj) -> bool:
    """Whether this is a TrainJob or a runtime with a form that the current Trainer rejects."""
    spec = obj.get("spec")
    if obj.get("kind") not in TRAINER_KINDS or obj.get("apiVersion") not in VERSIONS:
        return False
    if obj["apiVersion"] == ALPHA:
        return True
    if not isinstance(spec, dict):
        return False
    if obj["kind"] == "TrainJob":
        processes = _map(spec.get("trainer")).get("numProcPerNode")
        old = {"podTemplateOverrides", "podSpecOverrides", "labels", "annotations", "modelConfig", "datasetConfig"}
        return bool(old & set(spec)) or isinstance(processes, str) or _group(spec) == _OLD_GROUP or any(_bare_names(spec))
    torch = _map(_map(spec.get("mlPolicy")).get("torch"))
    return "numProcPerNode" in torch or "elasticPolicy" in torch


def migrate_legacy(obj: Obj) -> MigrationResult:
    """Migrate an object to a form that passes admission. Raises Invalid with fields that cannot be migrated, BadRequest."""
    migrated, notes = without_nulls(obj), Notes()
    is_alpha = migrated["apiVersion"] == ALPHA
    is_trainjob = migrated["kind"] == "TrainJob"
    problems = findings(LEGACY_TRAINJOB if is_trainjob else LEGACY_RUNTIME, migrated).all()
    if not problems:
        migrated["apiVersion"] = API_VERSION
        migrated.pop("status", None)
        spec = migrated["spec"]
        problems = list(_trainjob(spec, notes, is_alpha)) if is_trainjob else migrate_runtime(spec, notes, by_name=is_alpha)
    if problems:
        raise Invalid(f"{migrated['kind']} cannot be migrated", problems=problems)
    admit(_with_name(migrated))
    return MigrationResult([migrated], notes.notes)


def _with_name(obj: Obj) -> Obj:
    """Return the object with a name for admission. A missing name may be set on submission."""
    metadata = obj.get("metadata") or {}
    return obj if metadata.get("name") or metadata.get("generateName") else {**obj, "metadata": {**metadata, "name": "migrated"}}


def _trainjob(spec: Obj, notes: Notes, is_alpha: bool) -> Iterator[Problem]:
    """Migrate the spec in place. Yields problems for fields that cannot be migrated."""
    yield from _move(spec, "trainingRuntimeRef", spec, "runtimeRef", "spec.runtimeRef")
    if _group(spec) == _OLD_GROUP:
        spec["runtimeRef"]["apiGroup"] = "trainer.kubeflow.org"
    if spec.get("managedBy") == _OLD_CONTROLLER:
        spec["managedBy"] = names.TRAINJOB_CONTROLLER
    yield from _convert_initializers(spec, notes)
    for field in _TOP_TO_TRAINER:
        if field in spec:
            yield from _move(spec, field, spec.setdefault("trainer", {}), field, f"spec.trainer.{field}")
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


def _move(source: Obj, field: str, target: Obj, name: str, path: str) -> Iterator[Problem]:
    """Move a field, unless the target is set."""
    if field not in source:
        return
    if name in target:
        yield Problem(f"spec.{field}", f"Invalid value: {path} is set too; keep one of them")
        return
    target[name] = source.pop(field)


def _convert_initializers(spec: Obj, notes: Notes) -> Iterator[Problem]:
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
        yield from _move(spec, field, spec.setdefault("initializer", {}), which, f"spec.initializer.{which}")
        secret = _map(_map(spec["initializer"].get(which)).get("secretRef"))
        if secret.pop("namespace", None) is not None:
            notes.add(f"spec.{field}.secretRef.namespace", "is not kept: the Secret must be in the TrainJob's namespace")
    for which in _bare_names(spec):
        initializer = spec["initializer"][which]
        initializer["storageUri"] = f"hf://{initializer['storageUri']}"
        notes.add(f"spec.initializer.{which}.storageUri", "hf:// was added: a bare name is a repository of the Hugging Face Hub")


def _bare_names(spec: Obj) -> list[str]:
    """Return the initializers whose storageUri is a bare repository name."""
    initializers = _map(spec.get("initializer"))
    uris = {which: str(_map(initializers.get(which)).get("storageUri") or "") for which in ("dataset", "model")}
    return [which for which, uri in uris.items() if is_bare_name(uri)]


def _unpatchable(spec: Obj) -> Iterator[Problem]:
    """Yield problems for container fields that overrides could change, but patches cannot."""
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
    """Convert overrides by target job to patches by replicated job. For the same job the last one wins, as before."""
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
                    if _move_env(spec, part):
                        notes.add(f"spec.{field}[{number}]", "variables of a step's container were moved to the step's env")
                    if part:
                        _merge(jobs.setdefault(name, {}), part)
            if not override.get("targetJobs"):
                notes.add(f"spec.{field}[{number}].targetJobs", "is missing: the override applied to no job and was removed")
        if field == "podTemplateOverrides" and jobs:
            notes.add("spec.podTemplateOverrides", "became spec.runtimePatches")
    return [{"name": name, "template": {"spec": {"template": pod}}} for name, pod in jobs.items()]


def _targets(job: str, pod: Obj) -> list[tuple[str, Obj]]:
    """Return the jobs that a v2alpha1 job was converted to, each with its part of the override."""
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


def _move_env(spec: Obj, pod: Obj) -> bool:
    """Move variables of the steps' containers to the TrainJob's fields, since patches may not set them. Returns whether any moved."""
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
    """Return the value if it is an object, otherwise an empty one."""
    return value if isinstance(value, dict) else {}
