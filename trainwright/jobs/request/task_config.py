"""Adds to a training request what its task in a pipeline was given: resources, variables, volumes, placement. Pure.

Kubeflow Pipelines passes these on in the form of a pod's fields (`dsl.TaskConfig`), for the job instead of the pod that waits for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trainwright.jobs.request.setting_values import normalize_resources
from trainwright.jobs.request.train_request import TrainRequest
from trainwright.jobs.request.workspace import claim_of_volume, is_claim_of

_OF_STEP = "KFP_"
"""Variables that the backend sets for its own program."""
_OF_TRACKERS = ("MLFLOW_", "WANDB_")


@dataclass(frozen=True)
class Task:
    """What a task was given.

    `config` has the attributes of `dsl.TaskConfig`: `resources`, `env`, `volumes`, `volume_mounts`, `node_selector`, `tolerations`
    and `affinity`, each None if the task has none; it is None for a backend without it. `settings` are what the task has beyond that:
    its resources (those of `config` are then the waiting pod's), labels, annotations and volumes. Of the step itself, and not for the
    job, are the variables of trackers that it feeds, and the claim of the workspace, if it is mounted in the step.
    """

    config: Any = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    feeds_trackers: bool = False
    mounts_workspace: bool = False


NO_TASK = Task()


def with_task(request: TrainRequest, task: Task) -> TrainRequest:
    """Return the request together with what its task was given. A setting of the request takes precedence, entry by entry.

    Variables from the Secrets `store_secret` and `hub_secret` are left out: they are for the step itself, and the job references them
    where it needs them.
    """
    request = _with_settings(request, task.settings)
    config, place = task.config, request.placement
    if config is None:  # the task has no settings of Kubernetes
        return request
    own = _volumes_of_step(request, config.volumes or []) if task.mounts_workspace else set[str]()
    resources = {} if task.settings else _resources(config.resources)
    env = _variables(config.env, request, _OF_TRACKERS if task.feeds_trackers else ())
    volumes = [one for one in config.volumes or [] if one.get("name") not in own]
    mounts = [one for one in config.volume_mounts or [] if one.get("name") not in own]
    place = place.having(
        node_selector=_merge(config.node_selector or {}, place.node_selector),
        affinity=_merge(config.affinity or {}, place.affinity),
        tolerations=_with_list(place.tolerations, config.tolerations or [], None),
        volumes=_with_list(place.volumes, volumes, "name"),
        volume_mounts=_with_list(place.volume_mounts, mounts, "mountPath"),
    )
    return request.having(
        resources_per_node=_merge(resources, request.resources_per_node), env=_merge(env, request.env), placement=place
    )


def _with_settings(request: TrainRequest, settings: Mapping[str, Any]) -> TrainRequest:
    """Return the request with what was set on the task and the backend does not pass on."""
    if not settings:
        return request
    place = request.placement
    place = place.having(
        annotations=_merge(settings.get("annotations") or {}, place.annotations),
        volumes=_with_list(place.volumes, settings.get("volumes") or [], "name"),
        volume_mounts=_with_list(place.volume_mounts, settings.get("volume_mounts") or [], "mountPath"),
    )
    return request.having(
        resources_per_node=_merge(_resources(settings.get("resources")), request.resources_per_node),
        labels=_merge(settings.get("labels") or {}, request.labels),
        placement=place,
    )


def _with_list(own: list[Any], given: list[Any], key: str | None) -> list[Any]:
    return [*own, *(entry for entry in given if not _has(own, entry, key))]


def _resources(resources: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return limits and requests without the amounts that are 0 or empty, as a task without them may have."""
    found = {
        group: {name: amount for name, amount in (entries or {}).items() if amount}
        for group, entries in (resources or {}).items()
    }
    return dict(normalize_resources({group: amounts for group, amounts in found.items() if amounts}))


def _volumes_of_step(request: TrainRequest, volumes: list[Any]) -> set[str]:
    """Return the names of the volumes that are the workspace's claim."""
    return {str(volume.get("name")) for volume in volumes if is_claim_of(request.workspace, claim_of_volume(volume))}


def _variables(entries: list[dict[str, Any]] | None, request: TrainRequest, of_trackers: tuple[str, ...]) -> dict[str, Any]:
    secrets = {request.secrets.store_secret, request.secrets.hub_secret}
    found: dict[str, Any] = {}
    for entry in entries or []:
        reference = (entry.get("valueFrom") or {}).get("secretKeyRef") or {}
        if entry["name"].startswith((_OF_STEP, *of_trackers)) or (reference.get("name") and reference["name"] in secrets):
            continue
        found[entry["name"]] = {"valueFrom": entry["valueFrom"]} if entry.get("valueFrom") else str(entry.get("value") or "")
    return found


def _merge(given: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Return both, entry by entry; of two amounts, variables or terms with one name, `own`."""
    merged = {**given, **own}
    for key in given.keys() & own.keys():
        if isinstance(given[key], dict) and isinstance(own[key], dict) and "valueFrom" not in own[key]:
            merged[key] = {**given[key], **own[key]}
    return merged


def _has(own: list[Any], entry: Any, key: str | None) -> bool:
    return entry in own if key is None else any(other.get(key) == entry.get(key) for other in own)
