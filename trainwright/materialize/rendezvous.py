"""How the nodes of one TrainJob find each other: the name of the first, the common port, and each pod's own number."""

from __future__ import annotations

from trainwright.api import names
from trainwright.api.objects import Obj
from trainwright.materialize.draft import Draft, PodSet


def main_host(draft: Draft) -> str:
    """The first node's host name; Trainer takes the job for `node` and the TrainJob for the subdomain, whatever they are."""
    return f"{draft.name}-{names.NODE}-0-0.{draft.name}"


def pod_number(variable: str) -> Obj:
    """A variable that holds the pod's completion index, from 0."""
    path = f"metadata.annotations['{names.COMPLETION_INDEX}']"
    return {"name": variable, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def literal(variable: str, value: object) -> Obj:
    return {"name": variable, "value": str(value)}


def set_nodes(draft: Draft, pods: PodSet | None) -> None:
    """As many pods as the TrainJob asks for; without `numNodes` the count stays as it is."""
    nodes = (draft.trainer or {}).get("numNodes")
    if pods is not None and nodes is not None:
        pods.count = nodes


def host_names(draft: Draft, pods: PodSet) -> list[str]:
    """The name of every pod of a replicated job, as JobSet's headless service will resolve it."""
    subdomain = (draft.jobset_spec.get("network") or {}).get("subdomain") or draft.name
    replicas = int(pods.job.get("replicas") or 1)
    stem = f"{draft.name}-{pods.name}"
    return [f"{stem}-{replica}-{pod}.{subdomain}" for replica in range(replicas) for pod in range(pods.count)]
