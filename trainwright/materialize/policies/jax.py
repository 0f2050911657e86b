"""The JAX policy: who coordinates, how many processes there are and which one this is; one process a node, always.

Source: Trainer's jax plugin (reference section 2.11).
"""

from __future__ import annotations

from trainwright.api import names
from trainwright.materialize.draft import Draft
from trainwright.materialize.rendezvous import literal, main_host, pod_number, set_nodes
from trainwright.materialize.upsert import upsert_env, upsert_port


class JaxPolicy:
    name = "jax"

    def enforce_ml_policy(self, draft: Draft) -> None:
        pods = draft.trainer_pods()
        if draft.policy("jax") is None or draft.trainer is None or pods is None:
            return
        set_nodes(draft, pods)
        container = pods.container(names.NODE)
        if container is None:
            return
        variables = [
            literal("JAX_NUM_PROCESSES", pods.count),
            pod_number("JAX_PROCESS_ID"),
            literal("JAX_COORDINATOR_ADDRESS", f"{main_host(draft)}:{names.RENDEZVOUS_PORT}"),
        ]
        upsert_env(container, variables)
        upsert_port(container, {"containerPort": names.RENDEZVOUS_PORT})
