"""The rendezvous of a TrainJob's nodes: the first node's host name, the port, and each pod's index."""

from __future__ import annotations

from trainwright.api import names
from trainwright.api.objects import Obj
from trainwright.materialize.draft import Draft, PodSet


def main_host(draft: Draft) -> str:
    """Return the first node's host name. Like Trainer, always uses `node` as the job and the TrainJob's name as the subdomain."""
    return f"{draft.name}-{names.NODE}-0-0.{draft.name}"


def index_variable(variable: str) -> Obj:
    """Return a variable with the pod's completion index, from 0."""
    path = f"metadata.annotations['{names.COMPLETION_INDEX}']"
    return {"name": variable, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def value_variable(variable: str, value: object) -> Obj:
    return {"name": variable, "value": str(value)}


def set_node_count(draft: Draft, pods: PodSet | None) -> None:
    """Set the number of pods to the TrainJob's `numNodes`, if set."""
    nodes = (draft.trainer or {}).get("numNodes")
    if pods is not None and nodes is not None:
        pods.count = nodes


def host_names(draft: Draft, pods: PodSet) -> list[str]:
    """Return the host name of every pod of a replicated job, as resolved by JobSet's headless Service."""
    subdomain = (draft.jobset_spec.get("network") or {}).get("subdomain") or draft.name
    replicas = int(pods.job.get("replicas") or 1)
    stem = f"{draft.name}-{pods.name}"
    return [f"{stem}-{replica}-{pod}.{subdomain}" for replica in range(replicas) for pod in range(pods.count)]
