"""Looking a training runtime up in a cluster, in the form that `resolve_runtime` asks for."""

from __future__ import annotations

from collections.abc import Callable

from trainwright.api.errors import NotFound
from trainwright.api.kinds import CLUSTER_TRAINING_RUNTIME, TRAINING_RUNTIME
from trainwright.api.objects import Obj
from trainwright.cluster.protocol import Cluster


def runtime_lookup(cluster: Cluster, namespace: str) -> Callable[[str, str], Obj | None]:
    """A function from `(kind, name)` to the runtime, or None; a TrainingRuntime is looked for in `namespace`."""

    def lookup(kind: str, name: str) -> Obj | None:
        try:
            if kind == TRAINING_RUNTIME.kind:
                return cluster.get(TRAINING_RUNTIME, name, namespace)
            return cluster.get(CLUSTER_TRAINING_RUNTIME, name)
        except NotFound:
            return None

    return lookup
