"""Adds to the parameters of a training step what its task in a pipeline was given: resources, variables, volumes, placement. Pure.

Kubeflow Pipelines passes these on in the form of a pod's fields (`dsl.TaskConfig`), for the job instead of the pod that waits for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainwright.jobs.request.setting_values import normalize_resources, parse_structure
from trainwright.jobs.request.workspace import Workspace, claim_of_volume, is_claim_of

_OF_STEP = "KFP_"
"""Variables that the backend sets for its own program."""
_SECRETS = ("store_secret", "hub_secret")
_OF_TRACKERS = ("MLFLOW_", "WANDB_")


def with_task_config(parameters: Mapping[str, Any], config: Any) -> dict[str, Any]:
    """Return the parameters together with those of the task. A parameter of the component takes precedence, entry by entry.

    `config` has the attributes of `dsl.TaskConfig`: `resources`, `env`, `volumes`, `volume_mounts`, `node_selector`, `tolerations`
    and `affinity`, each None if the task has none; None for a backend without it. Variables from the Secrets `store_secret` and
    `hub_secret` are left out: they are for the step itself, and the job references them where it needs them.
    `task_settings` among the parameters is what the task has beyond that: its resources (those of `config` are then the waiting
    pod's), labels, annotations and volumes.
    So are the variables of trackers that the step feeds (`tracking`), and the claim of the workspace if it is mounted for the step
    (`workspace_path`): the job mounts its own folder of it. Raises ValueError for a parameter that cannot be parsed.
    """
    settings = parameters.get("task_settings") or {}
    merged = _with_settings(parameters, settings)
    if config is None:
        return merged
    secrets = {str(parameters.get(name) or "") for name in _SECRETS}
    own_volumes = _volumes_of_step(parameters, config.volumes or [])
    for name, given in (
        ("resources_per_node", {} if settings else _resources(config.resources)),
        ("env", _variables(config.env, secrets, _OF_TRACKERS if parameters.get("tracking") else ())),
        ("node_selector", config.node_selector),
        ("affinity", config.affinity),
    ):
        if given:
            merged[name] = _with_entries(merged, name, given)
    for name, given, key in (
        ("tolerations", config.tolerations, None),
        ("volumes", [one for one in config.volumes or [] if one.get("name") not in own_volumes], "name"),
        ("volume_mounts", [one for one in config.volume_mounts or [] if one.get("name") not in own_volumes], "mountPath"),
    ):
        if given:
            merged[name] = _with_list(merged, name, given, key)
    return merged


def _with_settings(parameters: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters with what was set on the task and the backend does not pass on."""
    merged = {name: value for name, value in parameters.items() if name != "task_settings"}
    for name, key in (("resources_per_node", "resources"), ("labels", "labels"), ("annotations", "annotations")):
        given = settings.get(key) or {}
        if given := _resources(given) if key == "resources" else given:
            merged[name] = _with_entries(merged, name, given)
    for name, key in (("volumes", "name"), ("volume_mounts", "mountPath")):
        if given_list := settings.get(name):
            merged[name] = _with_list(merged, name, given_list, key)
    return merged


def _with_entries(parameters: Mapping[str, Any], name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    own = parse_structure(parameters.get(name) or {}) or {}
    return _merge(given, normalize_resources(own) if name == "resources_per_node" else own)


def _with_list(parameters: Mapping[str, Any], name: str, given: list[Any], key: str | None) -> list[Any]:
    own = parse_structure(parameters.get(name) or []) or []
    return [*own, *(entry for entry in given if not _has(own, entry, key))]


def _resources(resources: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return limits and requests without the amounts that are 0 or empty, as a task without them may have."""
    found = {
        group: {name: amount for name, amount in (entries or {}).items() if amount}
        for group, entries in (resources or {}).items()
    }
    return {group: amounts for group, amounts in found.items() if amounts}


def _volumes_of_step(parameters: Mapping[str, Any], volumes: list[Any]) -> set[str]:
    """Return the names of the volumes that are the workspace's claim."""
    if not parameters.get("workspace_path") or not parameters.get("workspace"):
        return set()
    workspace = Workspace.parse(str(parameters["workspace"]))
    return {str(volume.get("name")) for volume in volumes if is_claim_of(workspace, claim_of_volume(volume))}


def _variables(entries: list[dict[str, Any]] | None, secrets: set[str], of_trackers: tuple[str, ...]) -> dict[str, Any]:
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
