"""Looks up a training runtime in a cluster, for `resolve_runtime`."""

from __future__ import annotations

from collections.abc import Callable

from trainwright.api.errors import NotFound
from trainwright.api.kinds import CLUSTER_TRAINING_RUNTIME, TRAINING_RUNTIME
from trainwright.api.objects import Obj
from trainwright.cluster.protocol import Cluster


def runtime_lookup(cluster: Cluster, namespace: str) -> Callable[[str, str], Obj | None]:
    """Return a function from `(kind, name)` to the runtime or None; a TrainingRuntime is looked up in `namespace`."""

    def lookup(kind: str, name: str) -> Obj | None:
        try:
            if kind == TRAINING_RUNTIME.kind:
                return cluster.get(TRAINING_RUNTIME, name, namespace)
            return cluster.get(CLUSTER_TRAINING_RUNTIME, name)
        except NotFound:
            return None

    return lookup
