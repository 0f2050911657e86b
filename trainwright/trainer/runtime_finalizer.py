"""Removes the "in use" finalizer of older Trainer versions from runtimes. Since 2.3 TrainJobs have snapshots of their runtime, and
nothing else would remove the finalizer, so that such a runtime could never be deleted.
"""

from __future__ import annotations

from trainwright.api import names
from trainwright.api.errors import NotFound
from trainwright.api.kinds import CLUSTER_TRAINING_RUNTIME, TRAINING_RUNTIME, Kind
from trainwright.cluster.protocol import Cluster
from trainwright.controlplane.controllers.controller import Controller, object_key
from trainwright.controlplane.controllers.queue import Key


def runtime_finalizer(cluster: Cluster, kinds: tuple[Kind, ...] = (TRAINING_RUNTIME, CLUSTER_TRAINING_RUNTIME)) -> Controller:
    """Return the controller for runtimes of these kinds. Keys without a namespace are ClusterTrainingRuntimes."""

    def reconcile(key: Key) -> None:
        namespace, name = key
        kind = TRAINING_RUNTIME if namespace else CLUSTER_TRAINING_RUNTIME
        try:
            runtime = cluster.get(kind, name, namespace or None)
        except NotFound:
            return
        finalizers = runtime["metadata"].get("finalizers") or []
        if names.RUNTIME_IN_USE not in finalizers:
            return
        kept = [entry for entry in finalizers if entry != names.RUNTIME_IN_USE]
        patch = {"metadata": {"finalizers": kept or None, "resourceVersion": runtime["metadata"]["resourceVersion"]}}
        cluster.patch(kind, name, patch, namespace or None)

    return Controller("runtime", reconcile, dict.fromkeys(kinds, object_key))
