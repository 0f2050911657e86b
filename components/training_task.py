"""The task of a training step: what is set on it is for its TrainJob, and the pod that waits for the job has small resources.

Kubeflow Pipelines passes a task's resources either to its pod or to the component (`dsl.TaskConfig`), or the same to both, and labels,
annotations and empty volumes only to the pod. So a task of this kind keeps what is set on it for the job in an input, `task_settings`,
and the resources that the backend knows are the pod's.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

from kfp import dsl
from kfp.dsl import PipelineTask, pipeline_channel
from kfp.dsl.structures import ResourceSpec

from trainwright.jobs.credentials.secret_detection import reject_known_literals

INPUT = "task_settings"
VARIABLE = "TRAINWRIGHT_STEP_RESOURCES"
STEP_RESOURCES = {"cpu_request": "100m", "cpu_limit": "1", "memory_request": "256Mi", "memory_limit": "1Gi"}
"""Of the pod that waits, whose program was measured to use 95 MB. A namespace may demand requests and limits of every container."""
TASK_CONFIG = [
    dsl.TaskConfigPassthrough(field=dsl.TaskConfigField.RESOURCES, apply_to_task=True),
    dsl.TaskConfigField.KUBERNETES_NODE_SELECTOR,
    dsl.TaskConfigField.KUBERNETES_TOLERATIONS,
    dsl.TaskConfigField.KUBERNETES_AFFINITY,
    dsl.TaskConfigPassthrough(field=dsl.TaskConfigField.ENV, apply_to_task=True),
    dsl.TaskConfigPassthrough(field=dsl.TaskConfigField.KUBERNETES_VOLUMES, apply_to_task=True),
]
"""Settings of a task that are for its TrainJob. kfp refuses to compile a task with a setting that is not listed. Placement is not for
the pod that waits, and its resources are `STEP_RESOURCES`; variables and volumes are for both: the step may need credentials, or a CA.
"""
_SETTERS = ("cpu_request", "cpu_limit", "memory_request", "memory_limit", "accelerator_type", "accelerator_limit", "gpu_limit")


def set_step_resources(
    task: PipelineTask,
    *,
    cpu_request: Any = None,
    cpu_limit: Any = None,
    memory_request: Any = None,
    memory_limit: Any = None,
) -> PipelineTask:
    """Set the resources of the pod of a step, and not those of its TrainJob; what is not given stays. Returns the task.

    Quantities, or parameters of the pipeline, as for `set_cpu_limit` and `set_memory_limit`. Raises ValueError for anything else.
    """
    given = {"cpu_request": cpu_request, "cpu_limit": cpu_limit, "memory_request": memory_request, "memory_limit": memory_limit}
    for name, value in given.items():
        if value is not None:
            getattr(PipelineTask, f"set_{name}")(task, value)
    return task


class TrainingTask(PipelineTask):  # type: ignore[misc]
    """A task whose resources, labels, annotations and empty volumes are for its TrainJob."""

    _of_job: ResourceSpec

    @property
    def inputs(self) -> dict[str, Any]:
        """The inputs of the task, with what was set on it so far."""
        self._inputs[INPUT] = {"resources": _amounts(self._of_job), **_of_pod(self.platform_config.get("kubernetes") or {})}
        return self._inputs  # type: ignore[no-any-return]  # kfp has no types

    def set_env_variable(self, name: str, value: Any) -> PipelineTask:
        """As of the base class. Raises LiteralSecret for a credential, which would be part of the compiled pipeline."""
        reject_known_literals({"env": {name: value}})
        return super().set_env_variable(name, value)


def _setter(name: str) -> Callable[..., PipelineTask]:
    """Return the method of kfp that sets a resource, for those of the job."""
    original = getattr(PipelineTask, f"set_{name}")

    def set_for_job(self: TrainingTask, value: Any) -> PipelineTask:
        own, self.container_spec.resources = self.container_spec.resources, self._of_job
        try:
            original(self, value)
        finally:
            self.container_spec.resources = own
        known = {channel.pattern for channel in self._channel_inputs}
        found = pipeline_channel.extract_pipeline_channels_from_any(str(value))
        self._channel_inputs += [channel for channel in found if channel.pattern not in known]
        return self

    set_for_job.__name__, set_for_job.__doc__ = f"set_{name}", original.__doc__
    return set_for_job


for _name in _SETTERS:
    if hasattr(PipelineTask, f"set_{_name}"):
        setattr(TrainingTask, f"set_{_name}", _setter(_name))


def as_training_task(task: PipelineTask) -> PipelineTask:
    """Make a task of a pipeline one of a training. One that has run already stays what it is: `kfp.local` runs a component
    that is called outside of a pipeline.

    Raises ValueError for resources in TRAINWRIGHT_STEP_RESOURCES that are none.
    """
    if task.state.name != "FUTURE":  # `kfp.local` has run it already
        return task
    task.__class__ = TrainingTask  # kfp creates the tasks of all components itself
    task._of_job = ResourceSpec()
    return set_step_resources(task, **_default_resources())


def _default_resources() -> dict[str, str]:
    text = os.environ.get(VARIABLE, "")
    if not text:
        return STEP_RESOURCES
    expected = f"{VARIABLE}: expected an object with some of {', '.join(STEP_RESOURCES)}, not {text[:80]!r}"
    try:
        given = json.loads(text)
    except ValueError:
        raise ValueError(expected) from None
    if not isinstance(given, dict) or given.keys() - STEP_RESOURCES.keys():
        raise ValueError(expected)
    return {**STEP_RESOURCES, **{name: str(amount) for name, amount in given.items()}}


def _amounts(resources: ResourceSpec) -> dict[str, dict[str, str]]:
    limits = {"cpu": resources.cpu_limit, "memory": resources.memory_limit}
    if resources.accelerator_type:
        limits[resources.accelerator_type] = resources.accelerator_count
    requests = {"cpu": resources.cpu_request, "memory": resources.memory_request}
    groups = {"limits": limits, "requests": requests}
    return {group: {name: str(amount) for name, amount in entries.items() if amount} for group, entries in groups.items()}


def _of_pod(settings: dict[str, Any]) -> dict[str, Any]:
    """Return what kfp.kubernetes sets on the pod only, in the form of the component's parameters."""
    metadata, folders = settings.get("podMetadata") or {}, settings.get("emptyDirMounts") or []
    found = {
        "labels": dict(metadata.get("labels") or {}),
        "annotations": dict(metadata.get("annotations") or {}),
        "volumes": [
            {"name": one["volumeName"], "emptyDir": {key: one[key] for key in ("medium", "sizeLimit") if one.get(key)}}
            for one in folders
        ],
        "volume_mounts": [{"name": one["volumeName"], "mountPath": one["mountPath"]} for one in folders],
    }
    return {name: value for name, value in found.items() if value}
