"""A TrainJob with an unknown runtime: the event lists those that exist, or says why they cannot be listed."""

from __future__ import annotations

from typing import Any

from factories import trainjob

from trainwright.api.errors import Forbidden
from trainwright.api.kinds import CLUSTER_TRAINING_RUNTIME, EVENT, TRAINING_RUNTIME
from trainwright.api.objects import name_of
from trainwright.cluster.protocol import DelegatingCluster
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.materialize import Settings
from trainwright.runtimes import bundled_runtimes
from trainwright.trainer.trainjob import TrainJobReconciler


class Narrow(DelegatingCluster):
    """May get runtimes, not list them."""

    def list(self, kind: Any, namespace: str | None = None, **options: Any) -> Any:
        if kind in (CLUSTER_TRAINING_RUNTIME, TRAINING_RUNTIME):
            raise Forbidden(f"missing permission: list {kind.resource}")
        return super().list(kind, namespace, **options)


def said_about(cluster: EmbeddedCluster, controllers: Any, **ref: str) -> str:
    """The event of a TrainJob whose runtime is deleted before a controller looks at it: at admission it has to exist."""
    runtime = bundled_runtimes()[0]
    kind = TRAINING_RUNTIME if ref.get("kind") == "TrainingRuntime" else CLUSTER_TRAINING_RUNTIME
    where = {"namespace": "default"} if kind.namespaced else {}
    cluster.create({**runtime, "kind": kind.kind, "metadata": {"name": ref["name"], **where}})
    cluster.create(trainjob(script="true", runtimeRef=ref))
    cluster.delete(kind, ref["name"], where.get("namespace"))
    TrainJobReconciler(controllers, Settings, bundled=False).reconcile(("default", "demo"))
    (event,) = cluster.list(EVENT, "default").items
    assert event["reason"] == "TrainJobResourcesCreationFailed"
    return str(event["message"])


def test_those_that_exist_are_listed(cluster: EmbeddedCluster) -> None:
    said = said_about(cluster, cluster, name="torch-distribute")
    names = sorted(map(name_of, bundled_runtimes()))
    assert len(names) >= 8
    assert (
        f"there is no ClusterTrainingRuntime 'torch-distribute'; did you mean 'torch-distributed'? known: {', '.join(names)}"
        in said
    )


def test_those_of_the_namespace_are_listed_for_their_kind(cluster: EmbeddedCluster) -> None:
    runtime = bundled_runtimes()[0]
    cluster.create({**runtime, "kind": "TrainingRuntime", "metadata": {"name": "mine", "namespace": "default"}})
    assert said_about(cluster, cluster, name="zzz", kind="TrainingRuntime").endswith("known: mine")


def test_who_may_not_list_them_does_not_say_that_there_are_none(cluster: EmbeddedCluster) -> None:
    said = said_about(cluster, Narrow(cluster), name="torch-distribute")
    assert "known: none" not in said
    reason = "missing permission: list clustertrainingruntimes.trainer.kubeflow.org"
    assert said.endswith(f"those of the cluster cannot be listed: {reason}")
