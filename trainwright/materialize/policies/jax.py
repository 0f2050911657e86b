"""The JAX policy: coordinator address, number of processes and process id; always one process per node.

Source: Trainer's jax plugin (reference section 2.11).
"""

from __future__ import annotations

from trainwright.api import names
from trainwright.materialize.draft import Draft, upsert_env, upsert_port
from trainwright.materialize.resources import index_variable, main_host, set_node_count, value_variable


class JaxPolicy:
    name = "jax"

    def enforce_ml_policy(self, draft: Draft) -> None:
        pods = draft.trainer_pods()
        if draft.policy("jax") is None or draft.trainer is None or pods is None:
            return
        set_node_count(draft, pods)
        container = pods.container(names.NODE)
        if container is None:
            return
        variables = [
            value_variable("JAX_NUM_PROCESSES", pods.count),
            index_variable("JAX_PROCESS_ID"),
            value_variable("JAX_COORDINATOR_ADDRESS", f"{main_host(draft)}:{names.RENDEZVOUS_PORT}"),
        ]
        upsert_env(container, variables)
        upsert_port(container, {"containerPort": names.RENDEZVOUS_PORT})
