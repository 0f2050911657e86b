"""The policy of Paddle: the PADDLE_* variables that `paddle.distributed.init_parallel_env` reads, for one process on each node.

There is no PADDLE_MASTER: with it, `paddle.distributed.launch` starts its server only on a pod whose IP address it is, and waits for
ever. Without it, processes meet at the first endpoint.
"""

from __future__ import annotations

from collections.abc import Iterator

from trainwright.api import names
from trainwright.api.errors import Problem
from trainwright.materialize.draft import Draft, upsert_env, upsert_port
from trainwright.materialize.frameworks.labelled_runtime import PADDLE, process_problems, training_container
from trainwright.materialize.resources import host_names, index_variable, value_variable

_INDEX = "PADDLE_TRAINER_ID"


class PaddlePolicy:
    name = PADDLE

    def validate(self, draft: Draft) -> Iterator[Problem]:
        yield from process_problems(draft, PADDLE)

    def enforce_ml_policy(self, draft: Draft) -> None:
        found = training_container(draft, PADDLE)
        if found is None:
            return
        pods, container = found
        hosts = host_names(draft, pods)
        first, _, subdomain = hosts[0].partition(".")
        own = f"{first.removesuffix('0')}$({_INDEX}).{subdomain}"
        variables = [
            index_variable(_INDEX),  # first: references lead to earlier variables only
            value_variable("PADDLE_TRAINERS_NUM", len(hosts)),
            value_variable("PADDLE_TRAINER_ENDPOINTS", ",".join(f"{host}:{names.RENDEZVOUS_PORT}" for host in hosts)),
            value_variable("PADDLE_CURRENT_ENDPOINT", f"{own}:{names.RENDEZVOUS_PORT}"),
        ]
        upsert_env(container, variables)
        upsert_port(container, {"containerPort": names.RENDEZVOUS_PORT})
