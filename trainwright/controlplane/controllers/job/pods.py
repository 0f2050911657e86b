"""The pods of a Job: making one for an index, and telling what state one is in."""

from __future__ import annotations

from trainwright.api import names
from trainwright.api.objects import Obj, annotations_of, copy_of, is_deleting, labels_of, name_of, namespace_of, owner_reference

_NAME_LIMIT = 58


def new_pod(job: Obj, index: int | None) -> Obj:
    """The pod for a completion index (None for NonIndexed Jobs); the API server completes its name."""
    template = copy_of(job["spec"]["template"])
    metadata = template.get("metadata") or {}
    labels, annotations = dict(metadata.get("labels") or {}), dict(metadata.get("annotations") or {})
    spec = template["spec"]
    prefix = f"{name_of(job)}-"
    if index is not None:
        annotations[names.COMPLETION_INDEX] = labels[names.COMPLETION_INDEX] = str(index)
        spec.setdefault("hostname", f"{name_of(job)}-{index}")
        prefix = f"{name_of(job)[: _NAME_LIMIT - len(str(index)) - 2]}-{index}-"
        _add_index_variable(spec)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": prefix[:_NAME_LIMIT],
            "namespace": namespace_of(job),
            "labels": labels,
            "annotations": annotations,
            "finalizers": [*(metadata.get("finalizers") or []), names.JOB_TRACKING_FINALIZER],
            "ownerReferences": [owner_reference(job)],
        },
        "spec": spec,
    }


def index_of(pod: Obj) -> int | None:
    text = annotations_of(pod).get(names.COMPLETION_INDEX) or labels_of(pod).get(names.COMPLETION_INDEX)
    return int(text) if text is not None and text.isdigit() else None


def phase_of(pod: Obj) -> str:
    return str((pod.get("status") or {}).get("phase") or "Pending")


def is_terminal(pod: Obj) -> bool:
    return phase_of(pod) in ("Succeeded", "Failed")


def is_active(pod: Obj) -> bool:
    return not is_terminal(pod) and not is_deleting(pod)


def is_terminating(pod: Obj) -> bool:
    return is_deleting(pod) and not is_terminal(pod)


def is_ready(pod: Obj) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or []
    return any(entry.get("type") == "Ready" and entry.get("status") == "True" for entry in conditions)


def is_tracked(pod: Obj) -> bool:
    return names.JOB_TRACKING_FINALIZER in (pod["metadata"].get("finalizers") or [])


def restarts_of(pod: Obj) -> int:
    status = pod.get("status") or {}
    containers = [*(status.get("containerStatuses") or []), *(status.get("initContainerStatuses") or [])]
    return sum(int(container.get("restartCount") or 0) for container in containers)


def finished_at(pod: Obj) -> str:
    """When the last container of a pod ended (RFC 3339); its deletion or creation where no container says."""
    ended = [
        (container.get("state") or {}).get("terminated", {}).get("finishedAt") or ""
        for container in (pod.get("status") or {}).get("containerStatuses") or []
    ]
    metadata = pod["metadata"]
    return max(ended, default="") or str(metadata.get("deletionTimestamp") or metadata.get("creationTimestamp"))


def _add_index_variable(spec: Obj) -> None:
    reference = {"fieldRef": {"fieldPath": f"metadata.labels['{names.COMPLETION_INDEX}']"}}
    for container in [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]:
        env = container.setdefault("env", [])
        if not any(entry["name"] == "JOB_COMPLETION_INDEX" for entry in env):
            env.append({"name": "JOB_COMPLETION_INDEX", "valueFrom": reference})
