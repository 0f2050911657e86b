"""The resources of a node, with GPUs and CPUs counted for the number of processes, and the rendezvous of a TrainJob's nodes."""

from __future__ import annotations

from trainwright.api import names
from trainwright.api.objects import Obj
from trainwright.api.quantities import canonical, parse_quantity
from trainwright.materialize.draft import Draft, PodSet


def merge_resources(runtime: Obj | None, override: Obj) -> Obj:
    """Merge limits and requests by key; the TrainJob's take precedence. Claims are dropped, as in Trainer."""
    merged: Obj = {}
    for group in ("limits", "requests"):
        overrides = {name: canonical(amount) for name, amount in (override.get(group) or {}).items()}
        values = {**((runtime or {}).get(group) or {}), **overrides}
        if values:
            merged[group] = values
    return merged


def resources_for_process_count(draft: Draft) -> Obj:
    """Return the resources from which the number of processes is derived.

    `resourcesPerNode` of the TrainJob, unmerged, if set; else those of the first container `node` (Trainer 2.3, so the
    number of processes can disagree with the container's resources).
    """
    override = (draft.trainer or {}).get("resourcesPerNode")
    if override is not None:
        return dict(override)
    for pods in draft.pod_sets:
        container = pods.container(names.NODE)
        if (pods.name == names.NODE or pods.ancestor == names.ANCESTOR_TRAINER) and container is not None:
            return container.get("resources") or {}
    return {}


def gpu_count(resources: Obj) -> int:
    """Return the value of the first resource whose name contains `gpu`, in requests, else in limits; 0 without one."""
    for group in ("requests", "limits"):
        for name, amount in sorted((resources.get(group) or {}).items()):
            if "gpu" in name.lower():
                count = parse_quantity(amount).ceiling()
                if count:
                    return count
                break
    return 0


def cpu_count(resources: Obj) -> int:
    """Return the CPU request, else the limit, rounded up; 0 without either."""
    for group in ("requests", "limits"):
        amount = (resources.get(group) or {}).get("cpu")
        if amount is not None:
            count = parse_quantity(amount).ceiling()
            if count:
                return count
    return 0


def processes_per_node(draft: Draft) -> str:
    """Return the processes per node: the TrainJob's number, else `auto` with GPUs (resolved by torchrun), else the CPUs."""
    number = (draft.trainer or {}).get("numProcPerNode")
    if number is not None:
        return str(number)
    resources = resources_for_process_count(draft)
    return "auto" if gpu_count(resources) else str(max(1, cpu_count(resources)))


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
