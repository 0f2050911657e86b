"""The torch policy: `PET_*` variables and the master port, so that torchrun needs no rendezvous arguments.

Source: Trainer's torch plugin (reference sections 2.9, 4.2 rules 15 and 16).
"""

from __future__ import annotations

from collections.abc import Iterator

from trainwright.api import names
from trainwright.api.errors import Problem
from trainwright.api.objects import Obj, named
from trainwright.materialize.draft import Draft, PodSet, trainer_env, upsert_env, upsert_port
from trainwright.materialize.policies.torchtune import runs_torchtune
from trainwright.materialize.resources import index_variable, main_host, processes_per_node, set_node_count, value_variable

RESERVED = ("PET_MASTER_ADDR", "PET_MASTER_PORT", "PET_NNODES", "PET_NODE_RANK", "PET_NPROC_PER_NODE")
_MASTER = ("PET_MASTER_ADDR", "PET_MASTER_PORT")


class TorchPolicy:
    name = "torch"

    def validate(self, draft: Draft) -> Iterator[Problem]:
        torch = draft.policy("torch")
        if torch is None:
            return
        for job, container in _injection_targets(torch):
            if _target(draft, job, container) is None:
                yield Problem(
                    "spec.runtimeRef",
                    f"Invalid value: envInjection target {job!r} / {container!r} is not in the runtime's template",
                )
        trainer = draft.trainer or {}
        reserved = sorted({variable["name"] for variable in trainer.get("env") or []} & set(RESERVED))
        if reserved:
            yield Problem("spec.trainer.env", f"Invalid value: must not have reserved envs, invalid envs configured: {reserved}")

    def enforce_ml_policy(self, draft: Draft) -> None:
        torch = draft.policy("torch")
        if torch is None:
            return
        pods, trainer = draft.trainer_pods(), draft.trainer
        set_node_count(draft, pods)
        container = pods.container(names.NODE) if pods is not None else None
        if container is not None and trainer is not None:
            upsert_env(container, trainer_env(trainer.get("env")))
            known = _MASTER if runs_torchtune(draft) else ()  # torchtune takes the address as a flag
            upsert_env(container, [variable for variable in _rendezvous(draft, pods) if variable["name"] not in known])
            upsert_port(container, {"containerPort": names.RENDEZVOUS_PORT})
        for job, name in _injection_targets(torch):
            target = _target(draft, job, name)
            if target is not None:
                upsert_env(target, _rendezvous(draft, pods))


def _rendezvous(draft: Draft, pods: PodSet | None) -> list[Obj]:
    return [
        value_variable("PET_NNODES", pods.count if pods is not None else 1),
        value_variable("PET_NPROC_PER_NODE", processes_per_node(draft)),
        index_variable("PET_NODE_RANK"),
        value_variable("PET_MASTER_ADDR", main_host(draft)),
        value_variable("PET_MASTER_PORT", names.RENDEZVOUS_PORT),
    ]


def _injection_targets(torch: Obj) -> Iterator[tuple[str, str]]:
    for target in (torch.get("envInjection") or {}).get("targets") or []:
        for container in target.get("containerNames") or []:
            yield target["jobName"], container


def _target(draft: Draft, job: str, container: str) -> Obj | None:
    pods = draft.pods_named(job)
    if pods is None:
        return None
    return pods.container(container) or named(pods.pod_spec.get("initContainers"), container)
