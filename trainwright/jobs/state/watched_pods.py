"""The pods of all awaited jobs of a namespace, or of one job, by one list and one watch: looking at a job's pods costs no request.

Only what waits and reports read is kept of a pod, and of a TrainJob: a process may wait for thousands. Without permission to watch,
pods are listed for all jobs at once; while nothing can be read, each look lists its own pods.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Hashable
from typing import Unpack

from trainwright.api import names
from trainwright.api.kinds import POD, Kind
from trainwright.api.names import (
    AWAITED_BY_ANNOTATION,
    LOG_SHOWN_ANNOTATION,
    QUEUE_LABEL,
    STOPPED_EARLY_ANNOTATION,
    SUSPENDED_BY_ANNOTATION,
    VERDICT_ANNOTATION,
)
from trainwright.api.objects import Obj, labels_of, name_of, uid_of
from trainwright.cluster.protocol import Cluster, DelegatingCluster, Listing, ListOptions
from trainwright.cluster.reflector import CONNECTION_SECONDS, SharedWatches, Watched

_FIRST_LIST_SECONDS = 5.0
"""How long a look waits for the first list before it lists the pods itself."""
_LOOK_SECONDS = 0.05
_MAX_GONE = 32
"""Deleted pods of a job that are kept until its next look."""
_METADATA = (
    *("name", "namespace", "uid", "resourceVersion", "creationTimestamp", "labels"),
    *("deletionTimestamp", "deletionGracePeriodSeconds", "ownerReferences"),
)
_SPEC = ("nodeName", "tolerations", "schedulingGates", "terminationGracePeriodSeconds", "restartPolicy")
_CONTAINER = ("name", "image", "resources", "restartPolicy")
_JOB_METADATA = ("name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp")
_ANNOTATIONS = (
    STOPPED_EARLY_ANNOTATION,
    AWAITED_BY_ANNOTATION,
    LOG_SHOWN_ANNOTATION,
    SUSPENDED_BY_ANNOTATION,
    VERDICT_ANNOTATION,
)


def trim_pod(pod: Obj) -> Obj:
    """Return what waits and reports need of a pod: its identity, its state, and the resources of its containers. Pure."""
    spec = pod.get("spec") or {}
    kept = {field: spec[field] for field in _SPEC if field in spec}
    for group in ("initContainers", "containers"):
        kept[group] = [{field: entry[field] for field in _CONTAINER if field in entry} for entry in spec.get(group) or []]
    metadata = {field: pod["metadata"][field] for field in _METADATA if field in pod["metadata"]}
    return {"metadata": metadata, "spec": kept, "status": pod.get("status") or {}}


class WatchedPods:
    """The watches of a process. `key` identifies a cluster, for instance by the name of a connection. Thread-safe."""

    def __init__(self) -> None:
        self.watches = SharedWatches(trim_pod, lambda pod: labels_of(pod).get(names.JOBSET_NAME_LABEL, ""))

    def open(
        self,
        key: Hashable,
        cluster: Cluster,
        namespace: str,
        name: str,
        *,
        alone: bool = False,
        seconds: int = CONNECTION_SECONDS,
    ) -> PodsOfJob:
        """Return a view of `cluster` that knows the pods of the job `name`, until it is closed.

        `alone` watches the pods of this job only, for a process that waits for no other one of the namespace. The watch may outlive
        its last view by `seconds`.
        """
        selector = f"{names.JOBSET_NAME_LABEL}={name}" if alone else names.JOBSET_NAME_LABEL
        watched = Watched(POD, namespace, label_selector=selector, connection_seconds=seconds)
        return PodsOfJob(self.watches, key, cluster, watched, name)


class PodsOfJob(DelegatingCluster):
    """A cluster on which the pods of one job are those that the watch knows."""

    def __init__(self, watches: SharedWatches, key: Hashable, cluster: Cluster, watched: Watched, name: str):
        super().__init__(cluster)
        self._watches, self._namespace, self._name = watches, watched.namespace, name
        self._lock = threading.Lock()
        self._pods: dict[str, Obj] = {}
        self._gone: deque[Obj] = deque(maxlen=_MAX_GONE)
        self._subscription = watches.subscribe(key, lambda: cluster, watched, name, self._note)

    def list(self, kind: Kind, namespace: str | None = None, **options: Unpack[ListOptions]) -> Listing:
        """List; pods of the job from the watch."""
        step = self._step(options.get("label_selector", "")) if kind == POD and namespace == self._namespace else None
        if step is None or options.get("field_selector") or not self._is_current():  # the watch cannot answer this
            return self._cluster.list(kind, namespace, **options)
        with self._lock:
            known = tuple(self._pods.values())
        return Listing([pod for pod in known if not step or labels_of(pod).get(names.REPLICATED_JOB_LABEL) == step], "")

    def take_gone(self) -> tuple[Obj, ...]:
        """Return the pods of the job that were deleted since the last call, as they were last seen."""
        with self._lock:
            gone = tuple(self._gone)
            self._gone.clear()
        return gone

    def close(self) -> None:
        """End the view. Idempotent."""
        self._watches.unsubscribe(self._subscription)

    def _step(self, selector: str) -> str | None:
        """Return the step that a selector of the job's pods names, "" for all steps; None for another selector."""
        wanted = dict(part.split("=", 1) for part in selector.split(",") if "=" in part and "!" not in part)
        if len(wanted) != len(selector.split(",")) or wanted.pop(names.JOBSET_NAME_LABEL, "") != self._name:
            return None
        step = wanted.pop(names.REPLICATED_JOB_LABEL, "")
        return None if wanted else step

    def _is_current(self) -> bool:
        """Whether the watch knows the pods; False while they cannot be read."""
        reflector, deadline = self._subscription.reflector, time.monotonic() + _FIRST_LIST_SECONDS
        while not reflector.synced.wait(_LOOK_SECONDS):
            if reflector.failure is not None or time.monotonic() > deadline:
                return False
        return reflector.failure is None

    def _note(self, event: str, pod: Obj) -> None:
        with self._lock:
            earlier = self._pods.get(name_of(pod))
            if event == "DELETED":
                self._pods.pop(name_of(pod), None)
                self._gone.append(pod)
                return
            # Another pod of this name: the end of the first was missed.
            if earlier is not None and uid_of(earlier) != uid_of(pod):
                self._gone.append(earlier)
            self._pods[name_of(pod)] = pod


def trim_trainjob(trainjob: Obj) -> Obj:
    """Return what phase, progress, deadlines, an early stop and the waiting task need; for more, callers read the job again."""
    metadata = {name: trainjob["metadata"][name] for name in _JOB_METADATA if name in trainjob["metadata"]}
    if (queue := (trainjob["metadata"].get("labels") or {}).get(QUEUE_LABEL)) is not None:
        metadata["labels"] = {QUEUE_LABEL: queue}
    annotations = trainjob["metadata"].get("annotations") or {}
    if kept := {key: annotations[key] for key in _ANNOTATIONS if annotations.get(key)}:
        metadata["annotations"] = kept
    trimmed: Obj = {"metadata": metadata, "spec": {"suspend": True} if (trainjob.get("spec") or {}).get("suspend") else {}}
    if trainjob.get("status"):
        trimmed["status"] = trainjob["status"]
    return trimmed
