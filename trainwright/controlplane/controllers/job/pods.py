"""The pods of a Job: how one is built from the template, with its completion index, what their states are, and when they finished."""

from __future__ import annotations

from datetime import datetime, timedelta

from trainwright.api import names
from trainwright.api.containers import container_statuses
from trainwright.api.integers import parse_count
from trainwright.api.objects import Obj, annotations_of, copy_of, is_deleting, labels_of, name_of, namespace_of, owner_reference
from trainwright.api.times import parse_time

_NAME_LIMIT = 58


def index_of(pod: Obj) -> int | None:
    text = annotations_of(pod).get(names.COMPLETION_INDEX) or labels_of(pod).get(names.COMPLETION_INDEX)
    return parse_count(text) if text is not None else None


def phase_of(pod: Obj) -> str:
    return str((pod.get("status") or {}).get("phase") or "Pending")


def is_terminal(pod: Obj) -> bool:
    return phase_of(pod) in ("Succeeded", "Failed")


def is_active(pod: Obj) -> bool:
    return not is_terminal(pod) and not is_deleting(pod)


def is_terminating(pod: Obj) -> bool:
    return is_deleting(pod) and not is_terminal(pod)


def is_ready(pod: Obj) -> bool:
    return _ready_since(pod) is not None


def _ready_since(pod: Obj) -> str | None:
    for entry in (pod.get("status") or {}).get("conditions") or []:
        if entry.get("type") == "Ready" and entry.get("status") == "True":
            return str(entry.get("lastTransitionTime") or "")
    return None


def is_tracked(pod: Obj) -> bool:
    return names.JOB_TRACKING_FINALIZER in (pod["metadata"].get("finalizers") or [])


def finished_at(pod: Obj) -> datetime:
    """Return when a pod's last container finished; if unknown, when it became unready, was deleted or created."""
    status, metadata = pod.get("status") or {}, pod["metadata"]
    ends = [((entry.get("state") or {}).get("terminated") or {}).get("finishedAt") for entry in container_statuses(pod)]
    if ends and all(ends):
        return max(parse_time(str(end)) for end in ends)
    for entry in status.get("conditions") or []:
        if entry.get("type") == "Ready" and entry.get("status") == "False" and entry.get("lastTransitionTime"):
            return parse_time(entry["lastTransitionTime"])
    if metadata.get("deletionTimestamp"):
        grace = timedelta(seconds=int(metadata.get("deletionGracePeriodSeconds") or 0))
        return parse_time(metadata["deletionTimestamp"]) - grace
    return parse_time(metadata["creationTimestamp"])


def removal_order(pod: Obj) -> tuple[object, ...]:
    """Return a sort key for scale-down: unassigned, pending, unready, recently ready, often restarted and young pods come first."""
    ready = _ready_since(pod)
    return (
        bool((pod.get("spec") or {}).get("nodeName")),
        {"Pending": 0, "Unknown": 1}.get(phase_of(pod), 2),
        ready is not None,
        _newest_first(ready or ""),
        -max((int(entry.get("restartCount") or 0) for entry in container_statuses(pod)), default=0),
        _newest_first(str(pod["metadata"].get("creationTimestamp") or "")),
    )


def _newest_first(time: str) -> float:
    return -parse_time(time).timestamp() if time else float("-inf")


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
        reference = {"fieldRef": {"fieldPath": f"metadata.labels['{names.COMPLETION_INDEX}']"}}
        for container in [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]:
            env = container.setdefault("env", [])
            if not any(entry["name"] == "JOB_COMPLETION_INDEX" for entry in env):
                env.append({"name": "JOB_COMPLETION_INDEX", "valueFrom": reference})
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
