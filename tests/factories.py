"""Builders of what tests create: pods, Jobs, JobSets, TrainJobs, runtimes, events, requests, Airflow contexts; clusters in memory.

Every builder of an object takes `namespace`, `labels`, `metadata` and `status`; further keywords are fields of the spec. They are
merged into what it builds: objects key by key; every other value, and an empty object, replaces the default.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from trainwright.api.kinds import CLUSTER_TRAINING_RUNTIME, JOB, JOBSET, POD, TRAINING_RUNTIME, TRAINJOB, Kind
from trainwright.api.names import ANCESTOR_LABEL
from trainwright.api.objects import Obj, copy_of, name_of
from trainwright.controlplane.apiserver.storage.store import Store
from trainwright.controlplane.apiserver.verbs.resource_server import ResourceServer
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.jobs import TrainRequest
from trainwright.jobs.request.setting import in_groups
from trainwright.runtimes import bundled_runtime, bundled_runtimes
from trainwright.runtimes.bundled import FOLDERS
from trainwright.runtimes.image import VARIABLE
from trainwright.trainer.webhooks import VALIDATORS

IMAGE = "example.com/main:1"


def pod(name: str = "p", *, script: str = "", container: Mapping[str, Any] | None = None, phase: str = "", **fields: Any) -> Obj:
    """Build a pod of one container, which runs `script` with bash and has the fields of `container`."""
    main: Obj = {"name": "main", "image": IMAGE} | _command(script)
    fields["status"] = merged({"phase": phase} if phase else {}, fields.get("status") or {})
    return _object(POD, name, {"restartPolicy": "Never", "containers": [merged(main, container or {})]}, **fields)


def job(name: str = "j", **fields: Any) -> Obj:
    """Build a Job whose pods have one container."""
    pod_spec = {"restartPolicy": "Never", "containers": [{"name": "main", "image": IMAGE}]}
    return _object(JOB, name, {"template": {"spec": pod_spec}}, **fields)


def jobset(name: str = "js", *jobs: Obj, **fields: Any) -> Obj:
    """Build a JobSet of these `replicated_job`s."""
    return _object(JOBSET, name, {"replicatedJobs": list(jobs)}, **fields)


def replicated_job(
    name: str = "node", *, step: str = "", replicas: int | None = None, pod_spec: Mapping[str, Any] | None = None, **job_spec: Any
) -> Obj:
    """Build a replicated job of a JobSet or of a runtime.

    Args:
        name: its name.
        step: the step of a TrainJob that it runs, such as `trainer`.
        replicas: the number of Jobs.
        pod_spec: fields of the pods' spec, merged.
        job_spec: fields of the Jobs' spec, merged.
    """
    spec = {"template": {"spec": merged({"containers": [{"name": "node", "image": IMAGE}]}, pod_spec or {})}}
    metadata = {"metadata": {"labels": {ANCESTOR_LABEL: step}}} if step else {}
    count = {} if replicas is None else {"replicas": replicas}
    return {"name": name, **count, "template": {**metadata, "spec": merged(spec, job_spec)}}


def trainjob(
    name: str = "demo", *, runtime: str = "torch-distributed", script: str = "", nodes: int | None = None, **fields: Any
) -> Obj:
    """Build a TrainJob, whose trainer runs `script` with bash on so many nodes."""
    trainer = _command(script) | ({} if nodes is None else {"numNodes": nodes})
    return _object(TRAINJOB, name, {"runtimeRef": {"name": runtime}} | ({"trainer": trainer} if trainer else {}), **fields)


def runtime(name: str = "rt", *jobs: Obj, policy: Mapping[str, Any] | None = None, **fields: Any) -> Obj:
    """Build a ClusterTrainingRuntime, or with `namespace` a TrainingRuntime; without jobs, of one that trains."""
    kind = TRAINING_RUNTIME if fields.setdefault("namespace", "") else CLUSTER_TRAINING_RUNTIME
    spec = {
        "mlPolicy": {"numNodes": 1, **(policy or {})},
        "template": {"spec": {"replicatedJobs": list(jobs or (replicated_job(step="trainer"),))}},
    }
    return _object(kind, name, spec, **fields)


def event(kind: str, name: str, reason: str, message: str, at: str = "2100-01-01T00:00:00Z", **fields: Any) -> Obj:
    """Build an Event about an object of the namespace `default`; further keywords are fields of the event, merged."""
    built = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{name}.{reason.lower()}.{at[17:19]}", "namespace": "default"},
        "involvedObject": {"kind": kind, "name": name, "namespace": "default"},
        "type": "Normal",
        "reason": reason,
        "message": message,
        "lastTimestamp": at,
    }
    return merged(built, fields)


def container_status(state: Mapping[str, Any], **fields: Any) -> Obj:
    """Build the status of the container `node` of a pod, in this state."""
    return {"name": "node", "image": "", "imageID": "", "ready": False, "restartCount": 0, "state": state, **fields}


def terminated(code: int, reason: str = "Error", at: str = "2026-01-01T00:00:00Z", **fields: Any) -> Obj:
    """Build the state of a container that has terminated."""
    return {"terminated": {"exitCode": code, "reason": reason, "finishedAt": at, **fields}}


def catalogue_runtime(name: str) -> Obj:
    """Copy a runtime of the catalogue."""
    found = bundled_runtime(name)
    assert found is not None, name
    return found


def train_request(**settings: Any) -> TrainRequest:
    """Build a request from settings by name, those of groups among them."""
    return TrainRequest.parse(in_groups(TrainRequest, settings))


def program_request(**settings: Any) -> TrainRequest:
    """Build a request for a program of one line."""
    return train_request(**{"runtime": "torch-distributed", "command": ["true"], **settings})


def task_context(task: str = "train", *, retries: int = 0, **instance: Any) -> dict[str, Any]:
    """Build the context of a task in Airflow, with further fields of the task instance."""
    defaults = {"dag_id": "d", "run_id": "r", "map_index": -1, "try_number": 1, "max_tries": retries}
    ti = SimpleNamespace(task_id=task, **{**defaults, **instance})
    return {"ti": ti, "task": SimpleNamespace(retries=retries)}


@contextmanager
def cluster_in_memory(*objects: Obj, admitted_runtimes: Iterable[Obj] = ()) -> Iterator[EmbeddedCluster]:
    """Open a cluster without controllers and node that contains these objects, and runtimes as another one had stored them."""
    store = Store(":memory:")
    cluster = EmbeddedCluster(ResourceServer(store, validators=VALIDATORS))
    try:
        for each in admitted_runtimes:
            store.put(CLUSTER_TRAINING_RUNTIME.resource, "", name_of(each), copy_of(each))
        for each in objects:
            cluster.create(each)
        yield cluster
    finally:
        cluster.close()
        store.close()


@contextmanager
def cluster_with_runtimes() -> Iterator[EmbeddedCluster]:
    """Open a cluster as `cluster_in_memory` does, with the bundled runtimes, admitted once: that takes 15 ms."""
    with cluster_in_memory(admitted_runtimes=_admitted_runtimes(os.environ.get(VARIABLE), os.environ.get(FOLDERS))) as cluster:
        yield cluster


@functools.cache
def _admitted_runtimes(*_settings: str | None) -> list[Obj]:
    """The bundled runtimes with these settings, as a server keeps them."""
    with cluster_in_memory(*bundled_runtimes()) as cluster:
        return cluster.list(CLUSTER_TRAINING_RUNTIME).items


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> Obj:
    """Merge objects key by key; every other value of `changes`, and an empty object, replaces that of `base`."""
    both = {
        key: merged(value, changes[key])
        for key, value in base.items()
        if isinstance(value, dict) and isinstance(changes.get(key), dict) and changes[key]
    }
    return {**base, **changes, **both}


def _object(
    kind: Kind,
    name: str,
    defaults: Obj,
    *,
    namespace: str = "default",
    labels: dict[str, str] | None = None,
    metadata: Mapping[str, Any] | None = None,
    status: Mapping[str, Any] | None = None,
    **spec: Any,
) -> Obj:
    """Build an object. An empty name, namespace, labels or status is left out."""
    identity = {key: value for key, value in (("name", name), ("namespace", namespace), ("labels", labels)) if value}
    made = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": merged(identity, metadata or {})}
    return {**made, "spec": merged(defaults, spec)} | ({"status": dict(status)} if status else {})


def _command(script: str) -> Obj:
    return {"command": ["bash", "-c", script]} if script else {}
