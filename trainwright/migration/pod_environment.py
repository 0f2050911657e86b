"""Variables of the new pods that have the values which the old operators set, and references to fields of the pods."""

from __future__ import annotations

from trainwright.api import names
from trainwright.api.objects import Obj
from trainwright.migration.notes import Notes

COMPLETION_INDEX = f"metadata.annotations['{names.COMPLETION_INDEX}']"
JOB_INDEX = f"metadata.labels['{names.JOB_INDEX_LABEL}']"
_GLOBAL_JOB_INDEX = "metadata.labels['jobset.sigs.k8s.io/job-global-index']"
JOBSET_LABEL = f"metadata.labels['{names.JOBSET_NAME_LABEL}']"
JOBSET = "$(JOBSET_NAME)"
JOBSET_NAME: Obj = {"name": "JOBSET_NAME", "valueFrom": {"fieldRef": {"fieldPath": JOBSET_LABEL}}}
"""For host names that do not depend on the TrainJob's name. Comes before the variables that refer to it."""


def value(name: str, text: object) -> Obj:
    """Return a variable with a fixed value."""
    return {"name": name, "value": str(text)}


def field(name: str, path: str) -> Obj:
    """Return a variable with the value of a field of the pod."""
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def index(name: str) -> Obj:
    """Return a variable with the pod's completion index."""
    return field(name, COMPLETION_INDEX)


def rank(name: str, *, is_split: bool) -> Obj:
    """Return a variable with the pod's rank under `node_placement`."""
    return field(name, _GLOBAL_JOB_INDEX if is_split else COMPLETION_INDEX)


def set_environment(container: Obj, variables: list[Obj], path: str, notes: Notes, *, reserved: tuple[str, ...] = ()) -> None:
    """Insert the operator's variables before the container's own.

    The operators appended their variables, so that they won over the manifest's: a leftover RANK there had no effect.
    `reserved` are further names that only Trainer may set.
    """
    ours = {variable["name"] for variable in variables}
    own = container.get("env") or []
    last = {variable.get("name"): number for number, variable in enumerate(own)}
    kept = []
    for number, variable in enumerate(own):
        name = variable.get("name")
        if name in ours or name in reserved:
            why = "the operator set it too, and its value won" if name in ours else "Trainer sets it"
            notes.add(f"{path}.env[{number}]", f"{name} is not kept: {why}")
        elif last[name] == number:  # the last of several with this name was the one in effect
            kept.append(variable)
    if variables or kept:
        container["env"] = variables + kept
    else:
        container.pop("env", None)
