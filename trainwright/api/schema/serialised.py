"""Values in messages, as servers serialize their types: fields in the order of the type, without empty ones."""

from __future__ import annotations

from typing import Any

from trainwright.api.schema.check import as_json

_ORDER = (
    "manager", "time", "trainingRuntimeSpec",
    "name", "apiGroup", "kind", "groupName", "replicas", "labels", "annotations", "metadata",
    "parallelism", "completions", "suspend", "replicatedJobs", "template", "spec",
    "volumes", "initContainers", "containers", "restartPolicy",
    "image", "command", "args", "workingDir", "ports", "envFrom", "env", "value", "valueFrom", "resources", "limits", "requests",
    "volumeMounts", "mountPath", "securityContext",
)  # fmt: skip
_PLACE = {name: place for place, name in enumerate(_ORDER)}


def serialised(value: Any, *, containers: bool = False) -> str:
    """A value as JSON. `containers` are written with `resources` even if these are empty."""
    if containers:
        value = [{"resources": {}, **container} for container in value]
    return as_json(_ordered(value))


def _ordered(value: Any) -> Any:
    if isinstance(value, dict):
        names = sorted(value, key=lambda name: (_PLACE.get(name, len(_PLACE)), str(name)))
        return {name: _ordered(value[name]) for name in names}
    if isinstance(value, list):
        return [_ordered(item) for item in value]
    return value
