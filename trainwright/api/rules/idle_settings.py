"""Settings of a TrainJob that take no effect with its runtime, or another than expected: Trainer says nothing of them. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainwright.api import names
from trainwright.api.objects import Obj, labels_of

_OF_CONTAINER = ("image", "command", "args", "env", "resourcesPerNode")


def idle_settings(trainjob: Obj, runtime: Obj) -> Iterator[str]:
    """Yield a warning for each setting of `spec.trainer` that the runtime does not use, or that trains nothing.

    Trainer applies `numNodes` to the replicated job with the ancestor `trainer`, and the other fields to its container `node`.
    `resourcesPerNode` alone, without those of the runtime, decides on the number of processes.
    """
    trainer = (trainjob.get("spec") or {}).get("trainer") or {}
    jobs = ((((runtime.get("spec") or {}).get("template") or {}).get("spec")) or {}).get("replicatedJobs") or []
    steps = [job for job in jobs if _ancestor(job) == names.ANCESTOR_TRAINER]
    policy = (runtime.get("spec") or {}).get("mlPolicy") or {}
    counts_nodes = bool({"mpi", "flux"} & policy.keys())  # in pods of their own choice, and never 0
    set_fields = [field for field in _OF_CONTAINER if trainer.get(field)]
    if not steps:
        idle = [*(["numNodes"] if trainer.get("numNodes") is not None and not counts_nodes else []), *set_fields]
        label = f"{names.ANCESTOR_LABEL}={names.ANCESTOR_TRAINER}"
        yield from (
            f"spec.trainer.{field} takes no effect: no pod template of the runtime has the label {label}" for field in idle
        )
    else:
        containers = [container for job in steps for container in _containers(job)]
        if not any(container.get("name") == names.NODE for container in containers):
            found = ", ".join(str(container.get("name")) for container in containers) or "none"
            for field in set_fields:
                yield f"spec.trainer.{field} takes no effect: the runtime's training step has no container {names.NODE!r} ({found})"
        else:
            yield from _lost_gpus(trainer, containers)
    if trainer.get("numNodes") == 0 and not counts_nodes:
        yield "spec.trainer.numNodes is 0: no node is started, and the TrainJob is Complete at once"


def _lost_gpus(trainer: Obj, containers: list[Obj]) -> Iterator[str]:
    """Warn of resources without a GPU where the runtime has some: the number of processes is then not that of the GPUs."""
    given = trainer.get("resourcesPerNode")
    node = next(container for container in containers if container.get("name") == names.NODE)
    gpus = _gpus(node.get("resources") or {})
    if given and gpus and not _gpus(given) and trainer.get("numProcPerNode") is None:
        (resource, amount), *_ = gpus.items()
        yield (
            f"spec.trainer.resourcesPerNode names no GPU, but the runtime requests {resource}: {amount}: the number of processes "
            f"comes from these resources alone; add {resource}, or set numProcPerNode"
        )


def _gpus(resources: Obj) -> dict[str, Any]:
    return {
        name: amount
        for group in ("limits", "requests")
        for name, amount in (resources.get(group) or {}).items()
        if "gpu" in name.lower() and str(amount) != "0"
    }


def _ancestor(job: Obj) -> str:
    template = job.get("template") or {}
    return str(labels_of(template).get(names.ANCESTOR_LABEL) or "")


def _containers(job: Obj) -> list[Obj]:
    pod = (((job.get("template") or {}).get("spec") or {}).get("template") or {}).get("spec") or {}
    containers: list[Obj] = pod.get("containers") or []
    return containers
