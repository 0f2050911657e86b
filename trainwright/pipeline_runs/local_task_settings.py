"""What is set on the tasks of a pipeline, in a run on this machine.

On a cluster, the backend gives the variables, resources, placement and volumes of a task to its TrainJob as `task_config`. Here they
are put into that parameter. What cannot be honoured is named in a warning.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from trainwright.api.objects import Obj
from trainwright.pipeline_runs.compiled import CompiledPipeline

_CHANNEL, _PLACEHOLDER = "pipelinechannel--", "{{$"
_MOST_NAMES = 4
_VOLUMES_OF_CLAIMS = "pvcMount"
_SECRET_VOLUMES, _CONFIG_MAP_VOLUMES, _EMPTY_DIRS = "secretAsVolume", "configMapAsVolume", "emptyDirMounts"
_FUNCTION_OF = {
    "secretAsEnv": "use_secret_as_env",
    "configMapAsEnv": "use_config_map_as_env",
    "fieldPathAsEnv": "use_field_path_as_env",
    _SECRET_VOLUMES: "use_secret_as_volume",
    _CONFIG_MAP_VOLUMES: "use_config_map_as_volume",
    _VOLUMES_OF_CLAIMS: "mount_pvc",
    _EMPTY_DIRS: "empty_dir_mount",
    "genericEphemeralVolume": "add_ephemeral_volume",
    "enabledSharedMemory": "enable_shared_memory",
    "nodeSelector": "add_node_selector",
    "tolerations": "add_toleration",
    "nodeAffinity": "add_node_affinity",
    "podAffinity": "add_pod_affinity",
    "podMetadata": "add_pod_label, add_pod_annotation",
    "imagePullSecret": "set_image_pull_secrets",
    "imagePullPolicy": "set_image_pull_policy",
    "activeDeadlineSeconds": "set_timeout",
    "securityContext": "set_security_context",
}
"""Functions of kfp.kubernetes by the key of what they set."""
_OF_PODS_ONLY = {"imagePullSecret", "imagePullPolicy"}
"""A run on this machine pulls no image."""


@dataclass
class _Warnings:
    """Settings that are not honoured, each with its tasks: a warning for each setting, and not for each task."""

    tasks: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def add(self, task: str, text: str) -> None:
        if task not in self.tasks[text]:
            self.tasks[text].append(task)

    def lines(self) -> list[str]:
        return [f"{', '.join(tasks)}: {text}" for text, tasks in self.tasks.items()]


def with_task_settings(pipeline: CompiledPipeline, values: Mapping[str, Any]) -> tuple[CompiledPipeline, list[str]]:
    """Return the pipeline with the settings of its training tasks as their parameters, and warnings for those that have no effect.

    `values` are the parameters of the run: the name of a Secret may be one of them.
    """
    documents = copy.deepcopy(pipeline.documents)
    spec, warnings = documents[0], _Warnings()
    known = {**_defaults(pipeline), **values}
    executors = dict(pipeline.executors())
    platforms = documents[1].get("platforms", {}) if len(documents) > 1 else {}
    platform: dict[str, Obj] = platforms.get("kubernetes", {}).get("deploymentSpec", {}).get("executors", {})
    for task, component in _tasks(spec):
        label = component.get("executorLabel", "")
        container, settings = executors.get(label, {}), platform.get(label, {})
        parameters = component.get("inputDefinitions", {}).get("parameters", {})
        parameter = next((name for name, about in parameters.items() if about.get("parameterType") == "TASK_CONFIG"), None)
        name = label.removeprefix("exec-")
        if parameter is None:
            _warn_of_step(name, component, container, settings, known, warnings)
            continue
        if not component.get("taskConfigPassthroughs"):
            if settings.keys() - _OF_PODS_ONLY or container.get("env") or container.get("resources"):
                warnings.add(name, _NOT_PASSED)
            continue
        # They have them already, and the resources are the pod's.
        if "task_settings" in task.get("inputs", {}).get("parameters", {}):
            settings = {key: value for key, value in settings.items() if key not in _OF_THE_POD}
            container = {key: value for key, value in container.items() if key != "resources"}
        config = _task_config(name, container, settings, known, warnings)
        if config:
            inputs = task.setdefault("inputs", {}).setdefault("parameters", {})
            inputs[parameter] = {"runtimeValue": {"constant": config}}
    return replace(pipeline, documents=documents), warnings.lines()


def _defaults(pipeline: CompiledPipeline) -> dict[str, Any]:
    inputs = pipeline.documents[0]["root"].get("inputDefinitions", {}).get("parameters", {})
    return {name: about["defaultValue"] for name, about in inputs.items() if "defaultValue" in about}


def _tasks(spec: Obj) -> Iterator[tuple[Obj, Obj]]:
    """Yield each task of the pipeline, at any depth, with its component."""
    components = spec.get("components", {})
    for one in (spec["root"], *components.values()):
        for task in one.get("dag", {}).get("tasks", {}).values():
            component = components.get(task.get("componentRef", {}).get("name", ""), {})
            if "executorLabel" in component:
                yield task, component


def _task_config(task: str, container: Obj, settings: Obj, known: Mapping[str, Any], warnings: _Warnings) -> Obj:
    """Return what the backend passes to a training task, in its form."""
    literals = [{"name": str(one["name"]), "value": str(one.get("value", ""))} for one in container.get("env", [])]
    env = [*literals, *_references(task, settings, known, warnings)]
    volumes, mounts = _volumes(task, settings, known, warnings)
    config = {
        "env": env,
        "resources": _resources(container.get("resources", {})),
        "nodeSelector": settings.get("nodeSelector", {}).get("labels", {}),
        "tolerations": [one for one in settings.get("tolerations", []) if "tolerationJson" not in one],
        "volumes": volumes,
        "volumeMounts": mounts,
    }
    if settings.get("nodeSelector", {}).get("nodeSelectorJson"):
        warnings.add(task, "the node selector is known at run time only, and has no effect in a run on this machine")
    if any("tolerationJson" in one for one in settings.get("tolerations", [])):
        warnings.add(task, "a toleration is known at run time only, and has no effect in a run on this machine")
    for key in settings.keys() & _OF_THE_POD:
        warnings.add(task, f"{_FUNCTION_OF[key]} is not passed on to the component by Kubeflow Pipelines")
    for key in settings.keys() - _HONOURED - _OF_PODS_ONLY - _OF_THE_POD:
        warnings.add(task, f"{_FUNCTION_OF.get(key, key)} has no effect in a run on this machine")
    return {name: value for name, value in config.items() if value}


_HONOURED = {
    "secretAsEnv",
    "configMapAsEnv",
    "fieldPathAsEnv",
    "nodeSelector",
    "tolerations",
    _VOLUMES_OF_CLAIMS,
    _SECRET_VOLUMES,
    _CONFIG_MAP_VOLUMES,
}
_NOT_PASSED = (
    "what is set on the task does not reach its TrainJob, here and on a server: kfp forgets that of a component that is loaded from a "
    "file; use the Python component, or its parameters"
)
_OF_THE_POD = {_EMPTY_DIRS, "podMetadata"}
"""What a backend gives to the pod of a task only. Tasks of the project's components have it in their input `task_settings`, too."""


def _references(task: str, settings: Obj, known: Mapping[str, Any], warnings: _Warnings) -> Iterator[Obj]:
    """Yield the variables from Secrets, ConfigMaps and fields of the pod."""
    for kind, key, reference in (("secret", "secretAsEnv", "secretKeyRef"), ("configMap", "configMapAsEnv", "configMapKeyRef")):
        for one in settings.get(key, []):
            name = _name(one, f"{kind}Name", known)
            variables = {entry["envVar"]: entry[f"{kind}Key"] for entry in one.get("keyToEnv", [])}
            if name is None:
                warnings.add(
                    task, f"{_shown(variables)}: {_noun(kind)} is known at run time only: not set in a run on this machine"
                )
                continue
            if not name:
                continue
            if kind == "secret":
                warnings.add(
                    task, f"{_shown(variables)} of the Secret {name}: set in the training, but not in the step on this machine"
                )
            optional = {"optional": True} if one.get("optional") else {}
            for variable, entry in variables.items():
                yield {"name": variable, "valueFrom": {reference: {"name": name, "key": entry, **optional}}}
    for one in settings.get("fieldPathAsEnv", []):
        yield {"name": one["name"], "valueFrom": {"fieldRef": {"fieldPath": one["fieldPath"]}}}


def _resources(resources: Obj) -> Obj:
    accelerator = resources.get("accelerator", {})
    amounts = {
        "limits": {
            "cpu": resources.get("resourceCpuLimit"),
            "memory": resources.get("resourceMemoryLimit"),
            accelerator.get("resourceType", ""): accelerator.get("resourceCount"),
        },
        "requests": {"cpu": resources.get("resourceCpuRequest"), "memory": resources.get("resourceMemoryRequest")},
    }
    found = {
        group: {name: str(amount) for name, amount in entries.items() if name and amount and _PLACEHOLDER not in str(amount)}
        for group, entries in amounts.items()
    }
    return {group: entries for group, entries in found.items() if entries}


def _volumes(task: str, settings: Obj, known: Mapping[str, Any], warnings: _Warnings) -> tuple[list[Obj], list[Obj]]:
    volumes: list[Obj] = []
    mounts: list[Obj] = []
    for key, kind in ((_VOLUMES_OF_CLAIMS, "pvc"), (_SECRET_VOLUMES, "secret"), (_CONFIG_MAP_VOLUMES, "configMap")):
        for one in settings.get(key, []):
            name = _name(one, f"{kind}Name", known)
            if name:
                volume = f"{kind.lower()}-{name}"
                volumes.append({"name": volume, **_volume_source(kind, name, bool(one.get("optional")))})
                sub_path = {"subPath": one["subPath"]} if one.get("subPath") else {}
                mounts.append({"name": volume, "mountPath": one["mountPath"], **sub_path})
            elif name is None:
                warnings.add(task, f"the volume at {one['mountPath']} is known at run time only: not mounted from this machine")
    return [one for at, one in enumerate(volumes) if one not in volumes[:at]], mounts


def _volume_source(kind: str, name: str, optional: bool) -> Obj:
    if kind == "pvc":
        return {"persistentVolumeClaim": {"claimName": name}}
    return {kind: {"secretName" if kind == "secret" else "name": name, "optional": optional}}


def _warn_of_step(
    name: str, component: Obj, container: Obj, settings: Obj, known: Mapping[str, Any], warnings: _Warnings
) -> None:
    """Warn of the settings of a task that is not a training. Its literal variables are set."""
    for kind, key in (("secret", "secretAsEnv"), ("configMap", "configMapAsEnv")):
        for one in settings.get(key, []):
            found = _name(one, f"{kind}Name", known)
            if found != "":
                variables = [entry["envVar"] for entry in one.get("keyToEnv", [])]
                of = f" of the {_noun(kind)} {found}" if found else ""
                warnings.add(name, f"{_shown(variables)}{of}: not set in a run on this machine; set it in this environment")
    for one in settings.get(_VOLUMES_OF_CLAIMS, []):
        if "workspace_path" not in component.get("inputDefinitions", {}).get("parameters", {}):
            warnings.add(name, f"mount_pvc: nothing is mounted at {one['mountPath']} in a run on this machine")
    if container.get("resources"):
        warnings.add(name, "requests and limits of resources have no effect in a run on this machine")
    for key in settings.keys() - {"secretAsEnv", "configMapAsEnv", _VOLUMES_OF_CLAIMS} - _OF_PODS_ONLY:
        warnings.add(name, f"{_FUNCTION_OF.get(key, key)} has no effect in a run on this machine")


def _name(setting: Obj, field_name: str, known: Mapping[str, Any]) -> str | None:
    """Return the name of a Secret, ConfigMap or claim; None if another task supplies it."""
    parameter = setting.get(f"{field_name}Parameter") or {}
    constant = parameter.get("runtimeValue", {}).get("constant", setting.get(field_name) or setting.get("constant"))
    if constant is not None:
        return None if _PLACEHOLDER in str(constant) else str(constant)
    name = str(parameter.get("componentInputParameter") or "").removeprefix(_CHANNEL)
    return str(known[name]) if name in known else None


def _noun(kind: str) -> str:
    return "Secret" if kind == "secret" else "ConfigMap"


def _shown(names: Any) -> str:
    every = list(names)
    return ", ".join(every[:_MOST_NAMES]) + (f" and {len(every) - _MOST_NAMES} more" if len(every) > _MOST_NAMES else "")
