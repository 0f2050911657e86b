"""Benchmarks the controllers together with the API server, as in `trainwright up`, without a node that starts pods.

The baseline was measured once on this kind of machine: the real control plane (JobSet, Job and Trainer managers, API server, etcd),
with increased client rate limits. Its figures are printed next to the measured ones.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trainwright.api.kinds import JOBSET, POD, TRAINJOB
from trainwright.controlplane.apiserver.storage.store import Store
from trainwright.controlplane.apiserver.verbs.resource_server import ResourceServer
from trainwright.controlplane.controllers.job import job_controller
from trainwright.controlplane.controllers.jobset import jobset_controller
from trainwright.controlplane.controllers.scheduler import scheduler
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.embedded.home import Home
from trainwright.embedded.options import FeatureGates
from trainwright.embedded.plane import ControlPlane
from trainwright.embedded.process_setup import tune_gc
from trainwright.materialize import Settings
from trainwright.runtimes import bundled_runtimes
from trainwright.trainer.trainjob import TrainJobReconciler
from trainwright.trainer.webhooks import VALIDATORS

TRAINJOBS = 500
JOBS, PODS = 100, 10
WAITING = 3000


def trainjob(name: str) -> dict[str, Any]:
    spec = {"runtimeRef": {"name": "torch-distributed"}, "trainer": {"numNodes": 2}}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    }


def jobset() -> dict[str, Any]:
    pod = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "example.com/main"}]}}
    job = {"parallelism": PODS, "completions": PODS, "backoffLimit": 0, "template": pod}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "wide", "namespace": "default"},
        "spec": {
            "failurePolicy": {"maxRestarts": 3},
            "replicatedJobs": [{"name": "main", "replicas": JOBS, "template": {"spec": job}}],
        },
    }


def wait_until(what: str, reached: Callable[[], bool], seconds: float = 300) -> float:
    """Wait until `reached` returns true; returns the seconds that it took."""
    began = time.monotonic()
    while not reached():
        if time.monotonic() - began > seconds:
            raise SystemExit(f"{what} took more than {seconds:.0f} s")
        time.sleep(0.01)
    return time.monotonic() - began


def show(what: str, count: int, seconds: float, goal: int, peer: tuple[int, int], unit: str) -> None:
    rate = count / seconds
    print(f"{what:44} {rate:7.0f} {unit}/s   goal {goal}   peer {peer[0]} to {peer[1]}   ratio {rate / peer[1]:.1f}", flush=True)


class WriteCounter:
    """A cluster client that counts writes."""

    def __init__(self, cluster: Any):
        self._cluster, self.writes = cluster, 0

    def __getattr__(self, name: str) -> Any:
        if name in ("create", "update", "update_status", "patch", "delete", "bind"):
            self.writes += 1
        return getattr(self._cluster, name)


def unchanged() -> None:
    """Repeated reconciles of a TrainJob whose objects and pods all exist."""
    store = Store(":memory:")
    server = ResourceServer(store, validators=VALIDATORS)
    cluster = WriteCounter(EmbeddedCluster(server, shared=True))
    for runtime in bundled_runtimes():
        cluster.create(runtime)
    cluster.create(trainjob("same"))
    key = ("default", "same")
    made: dict[str, Callable[[tuple[str, str]], float | None]] = {
        "TrainJob": TrainJobReconciler(cluster, Settings, bundled=True).reconcile,
        "JobSet": jobset_controller(cluster).reconcile,
    }
    job = job_controller(cluster).reconcile
    for _ in range(3):
        for reconcile in made.values():
            reconcile(key)
        job(("default", "same-node-0"))
    for what, reconcile in made.items():
        reconcile(key)
        writes, times = cluster.writes, []
        for _ in range(1000):
            began = time.thread_time()
            reconcile(key)
            times.append(time.thread_time() - began)
        median = sorted(times)[len(times) // 2] * 1000
        goal = "   goal 0.3 ms" if what == "TrainJob" else ""
        print(
            f"an unchanged {what}, reconciled again: {median:.3f} ms of a core, {cluster.writes - writes} writes{goal}",
            flush=True,
        )
    store.close()


def schedule() -> None:
    """One scheduling pass over thousands of pending pods, on a node that can hold all of them."""
    store = Store(":memory:")
    server = ResourceServer(store, validators=VALIDATORS)
    cluster = EmbeddedCluster(server, shared=True)
    resources = {"cpu": "10000", "memory": "1Ti", "pods": "10000"}
    cluster.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "local"}, "status": {"allocatable": resources}})
    container = {"name": "main", "image": "example.com/main", "resources": {"requests": {"cpu": "1"}}}
    for number in range(WAITING):
        metadata = {"name": f"pod-{number}", "namespace": "default"}
        cluster.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}})
    reconcile = scheduler(cluster).reconcile
    began = time.monotonic()
    with cluster.together():
        reconcile(("", "pass"))
    seconds = time.monotonic() - began
    bound = len(cluster.list(POD, field_selector="spec.nodeName=local").items)
    print(f"{bound} of {WAITING} waiting pods placed in one pass: {bound / seconds:.0f} pods/s", flush=True)
    store.close()


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    unchanged()
    schedule()
    with tempfile.TemporaryDirectory() as folder:
        plane = ControlPlane(Home(Path(folder)), gates=FeatureGates(), node=False)
        plane.start()
        tune_gc()
        cluster, store = plane.cluster, plane._store
        began = time.monotonic()
        for number in range(TRAINJOBS):
            cluster.create(trainjob(f"train-{number}"))
        submitted = time.monotonic() - began
        wait_until("pods of the TrainJobs", lambda: store.size(POD.resource) >= 2 * TRAINJOBS)
        show(f"{TRAINJOBS} TrainJobs, submit to all pods", TRAINJOBS, time.monotonic() - began, 200, (22, 26), "TrainJobs")
        print(f"  (submitted in {submitted:.1f} s)")
        for number in range(TRAINJOBS):
            cluster.delete(TRAINJOB, f"train-{number}", "default")
        wait_until("deletion", lambda: store.size(POD.resource) + store.size(JOBSET.resource) == 0)

        began = time.monotonic()
        cluster.create(jobset())
        wait_until("pods of the JobSet", lambda: store.size(POD.resource) >= JOBS * PODS)
        show(f"a JobSet of {JOBS} Jobs x {PODS} pods", JOBS * PODS, time.monotonic() - began, 1000, (165, 248), "pods")
        before = {pod["metadata"]["uid"] for pod in cluster.list(POD, "default").items}
        began = time.monotonic()
        first = cluster.list(POD, "default").items[0]["metadata"]["name"]
        cluster.patch(POD, first, {"status": {"phase": "Failed"}}, "default", subresource="status")

        def recreated() -> bool:
            if store.size(POD.resource) < JOBS * PODS:
                return False
            records, _ = store.list(POD.resource, "default")
            return len(records) == JOBS * PODS and not any(record.object["metadata"]["uid"] in before for record in records)

        wait_until("recreation", recreated)
        show("the same, one pod fails: all recreated", JOBS * PODS, time.monotonic() - began, 500, (66, 76), "pods")
        plane.stop()


if __name__ == "__main__":
    main()
