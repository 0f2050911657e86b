"""The policy of TensorFlow: TF_CONFIG with the addresses of all workers, and the index of this one, which the kubelet fills in."""

from __future__ import annotations

import json
from collections.abc import Iterator

from trainwright.api import names
from trainwright.api.errors import Problem
from trainwright.materialize.draft import Draft, upsert_env, upsert_port
from trainwright.materialize.frameworks.labelled_runtime import TENSORFLOW, process_problems, training_container
from trainwright.materialize.resources import host_names, index_variable, value_variable

_INDEX = "TF_WORKER_INDEX"


class TensorFlowPolicy:
    name = TENSORFLOW

    def validate(self, draft: Draft) -> Iterator[Problem]:
        yield from process_problems(draft, TENSORFLOW)

    def enforce_ml_policy(self, draft: Draft) -> None:
        found = training_container(draft, TENSORFLOW)
        if found is None:
            return
        pods, container = found
        workers = [f"{host}:{names.RENDEZVOUS_PORT}" for host in host_names(draft, pods)]
        config = json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": 0}})
        config = config.replace('"index": 0', f'"index": $({_INDEX})')
        # The index first: references lead to earlier variables only.
        upsert_env(container, [index_variable(_INDEX), value_variable("TF_CONFIG", config)])
        upsert_port(container, {"containerPort": names.RENDEZVOUS_PORT})
