"""What is said of kinds and versions that Trainwright does not know, where no cluster can be asked: manifests often have both."""

from __future__ import annotations

from trainwright.api.errors import Problem
from trainwright.api.kinds import ALL, JOBSET, TRAINER
from trainwright.api.objects import Obj
from trainwright.text.suggest import suggest

_COMPLETE_GROUPS = (TRAINER, JOBSET.group)
"""The groups of which Trainwright knows every kind."""


def kind_problem(obj: Obj) -> Problem | None:
    """Return the problem of an object whose kind cannot exist, as kubectl would report it; None for one that may.

    Certain are a missing apiVersion, an unknown kind in a group of Kubeflow Trainer or JobSet, and an unknown version of a known kind.
    """
    version, kind = obj.get("apiVersion"), obj.get("kind")
    if not isinstance(version, str) or not version:
        return Problem("apiVersion", "Required value", "FieldValueRequired")
    if not isinstance(kind, str) or not kind or is_known(obj):
        return None
    group = version.rpartition("/")[0]
    versions = {one.api_version for one in ALL if (one.group, one.kind) == (group, kind)}
    message = f'no kind "{kind}" in version "{version}"'
    if versions:
        return Problem("apiVersion", message, "FieldValueNotSupported", hint=suggest(version, versions))
    if group in _COMPLETE_GROUPS:
        return Problem(
            "kind", message, "FieldValueNotSupported", hint=suggest(kind, {one.kind for one in ALL if one.group == group})
        )
    return None


def is_known(obj: Obj) -> bool:
    """Whether Trainwright knows kind and version of an object, and so its fields."""
    return any((one.api_version, one.kind) == (obj.get("apiVersion"), obj.get("kind")) for one in ALL)
