"""Builds a pod of a Job from the template, with its completion index."""

from __future__ import annotations

from trainwright.api import names
from trainwright.api.objects import Obj, copy_of, name_of, namespace_of, owner_reference

_NAME_LIMIT = 58


def new_pod(job: Obj, index: int | None, notes: dict[str, str]) -> Obj:
    """Return a pod for a completion index (None for NonIndexed Jobs), with additional annotations and a generateName."""
    template = copy_of(job["spec"]["template"])
    metadata = template.get("metadata") or {}
    labels, annotations = dict(metadata.get("labels") or {}), {**(metadata.get("annotations") or {}), **notes}
    spec = template["spec"]
    prefix = f"{name_of(job)}-"
    if index is not None:
        annotations[names.COMPLETION_INDEX] = labels[names.COMPLETION_INDEX] = str(index)
        spec["hostname"] = f"{name_of(job)}-{index}"
        prefix = f"{name_of(job)[: _NAME_LIMIT - len(str(index)) - 2]}-{index}-"
        _add_index_variable(spec)
    finalizers = [entry for entry in metadata.get("finalizers") or [] if entry != names.JOB_TRACKING_FINALIZER]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": prefix[:_NAME_LIMIT],
            "namespace": namespace_of(job),
            "labels": labels,
            "annotations": annotations,
            "finalizers": [*finalizers, names.JOB_TRACKING_FINALIZER],
            "ownerReferences": [owner_reference(job)],
        },
        "spec": spec,
    }


def _add_index_variable(spec: Obj) -> None:
    reference = {"fieldRef": {"fieldPath": f"metadata.labels['{names.COMPLETION_INDEX}']"}}
    for container in [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]:
        env = container.setdefault("env", [])
        if not any(entry["name"] == "JOB_COMPLETION_INDEX" for entry in env):
            env.append({"name": "JOB_COMPLETION_INDEX", "valueFrom": reference})
