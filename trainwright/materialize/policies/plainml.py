"""The plain policy: number of nodes and the TrainJob's variables, no rendezvous. Applies without torch, mpi and jax."""

from __future__ import annotations

from trainwright.api import names
from trainwright.materialize.draft import Draft, trainer_env, upsert_env


class PlainMLPolicy:
    name = "plainml"

    def enforce_ml_policy(self, draft: Draft) -> None:
        if any(draft.policy(other) is not None for other in ("torch", "mpi", "jax")):
            return
        pods, trainer = draft.trainer_pods(), draft.trainer or {}
        if pods is None:
            return
        if trainer.get("numNodes") is not None:
            pods.count = trainer["numNodes"]
        container = pods.container(names.NODE)
        if container is not None:
            upsert_env(container, trainer_env(trainer.get("env")))
