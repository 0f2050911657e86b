"""Looks up training runtimes in a cluster: one for a TrainJob, and the names of all for the error about an unknown one."""

from __future__ import annotations

from collections.abc import Callable

from trainwright.api.errors import ApiError, NotFound
from trainwright.api.kinds import CLUSTER_TRAINING_RUNTIME, TRAINING_RUNTIME
from trainwright.api.objects import Obj, name_of
from trainwright.cluster.protocol import Cluster
from trainwright.runtimes import ResolvedRuntime, RuntimeNotFound, resolve_runtime


def resolve_in_cluster(cluster: Cluster, ref: Obj, namespace: str, *, bundled: bool) -> ResolvedRuntime:
    """Return the runtime of `ref`, a `spec.runtimeRef` of a TrainJob in `namespace`: from the cluster, else bundled if allowed.

    Raises RuntimeNotFound, which lists the existing runtimes or says why they cannot be listed, and ApiError.
    """
    lookup = runtime_lookup(cluster, namespace)
    try:
        return resolve_runtime(ref, lookup, bundled=bundled)
    except RuntimeNotFound:
        pass  # listed only now: the list is needed for the message alone
    kind = TRAINING_RUNTIME if ref.get("kind") == TRAINING_RUNTIME.kind else CLUSTER_TRAINING_RUNTIME
    try:
        known = [name_of(runtime) for runtime in cluster.list(kind, namespace if kind.namespaced else None).items]
    except NotFound:  # the cluster does not serve runtimes
        return resolve_runtime(ref, lookup, bundled=bundled, known=())
    except ApiError as error:  # permission to read one does not imply permission to list all
        return resolve_runtime(ref, lookup, bundled=bundled, unlisted=error.message)
    return resolve_runtime(ref, lookup, bundled=bundled, known=known)


def runtime_lookup(cluster: Cluster, namespace: str) -> Callable[[str, str], Obj | None]:
    """Return a function from `(kind, name)` to the runtime or None; a TrainingRuntime is looked up in `namespace`."""

    def lookup(kind: str, name: str) -> Obj | None:
        try:
            if kind == TRAINING_RUNTIME.kind:
                return cluster.get(TRAINING_RUNTIME, name, namespace)
            return cluster.get(CLUSTER_TRAINING_RUNTIME, name)
        except NotFound:  # the catalogue may have it
            return None

    return lookup
