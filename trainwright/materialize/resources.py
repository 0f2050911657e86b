"""What a node may use: merging `resourcesPerNode`, and counting its GPUs and CPUs for the number of processes."""

from __future__ import annotations

from trainwright.api import names
from trainwright.api.objects import Obj
from trainwright.api.quantities import canonical, parse_quantity
from trainwright.materialize.draft import Draft


def merged_resources(runtime: Obj | None, override: Obj) -> Obj:
    """Limits and requests merged key by key, the TrainJob's winning; claims are lost, as they are in Trainer."""
    merged: Obj = {}
    for group in ("limits", "requests"):
        wanted = {name: canonical(amount) for name, amount in (override.get(group) or {}).items()}
        values = {**((runtime or {}).get(group) or {}), **wanted}
        if values:
            merged[group] = values
    return merged


def counted_resources(draft: Draft) -> Obj:
    """The resources that process counts are taken from.

    `resourcesPerNode` alone when the TrainJob sets it, unmerged; else those of the first container `node` that has any
    (Trainer 2.3: process counts and the container itself can disagree).
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
    """Value of the first resource whose name contains `gpu`; requests first, limits only if requests give none."""
    for group in ("requests", "limits"):
        for name, amount in sorted((resources.get(group) or {}).items()):
            if "gpu" in name.lower():
                count = parse_quantity(amount).ceiling()
                if count:
                    return count
                break
    return 0


def cpu_count(resources: Obj) -> int:
    """CPU request, else limit, rounded up to whole CPUs."""
    for group in ("requests", "limits"):
        amount = (resources.get(group) or {}).get("cpu")
        if amount is not None:
            count = parse_quantity(amount).ceiling()
            if count:
                return count
    return 0


def processes(draft: Draft) -> str:
    """Processes on a node: the TrainJob's number, `auto` where there are GPUs (torchrun resolves it), else the CPUs."""
    number = (draft.trainer or {}).get("numProcPerNode")
    if number is not None:
        return str(number)
    resources = counted_resources(draft)
    return "auto" if gpu_count(resources) else str(max(1, cpu_count(resources)))
