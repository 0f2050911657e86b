"""The pods of all awaited jobs of a namespace, or of one job, by one list and one watch: looking at a job's pods costs no request.

Only what waits and reports read is kept of a pod. Without permission to watch, pods are listed for all jobs at once; while nothing can
be read, each look lists its own pods.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Hashable
from typing import Unpack

from trainwright.api import names
from trainwright.api.kinds import POD, Kind
from trainwright.api.objects import Obj, labels_of, uid_of
from trainwright.cluster.delegating import DelegatingCluster
from trainwright.cluster.options import ListOptions
from trainwright.cluster.protocol import Cluster, Listing
from trainwright.cluster.reflector import CONNECTION_SECONDS, Reflector
from trainwright.cluster.transforming_lister import TransformingLister

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
        self._watches: dict[Hashable, _Watch] = {}
        self._lock = threading.Lock()

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
        place = (key, namespace, name if alone else "")
        with self._lock:
            watch = self._watches.get(place)
            if watch is None:
                watch = self._watches[place] = _Watch(cluster, namespace, name if alone else "", seconds)
            view = PodsOfJob(self, place, watch, cluster, namespace, name)
            watch.add(view)
        return view

    def close(self, view: PodsOfJob) -> None:
        """End a view; the last one of a namespace stops its watch."""
        with self._lock:
            view.source.remove(view)
            if not view.source.views and self._watches.get(view.key) is view.source:
                del self._watches[view.key]
                view.source.reflector.stop.set()


class PodsOfJob(DelegatingCluster):
    """A cluster on which the pods of one job are those that the watch knows."""

    def __init__(
        self, pods: WatchedPods, key: tuple[Hashable, str, str], source: _Watch, cluster: Cluster, namespace: str, name: str
    ):
        super().__init__(cluster)
        self.key, self.source, self.name = key, source, name
        self._pods, self._namespace, self._is_open = pods, namespace, True
        self.gone: deque[Obj] = deque(maxlen=_MAX_GONE)
        """Pods of the job that were deleted since the last call of `take_gone`."""

    def list(self, kind: Kind, namespace: str | None = None, **options: Unpack[ListOptions]) -> Listing:
        """List; pods of the job from the watch."""
        step = self._step(options.get("label_selector", "")) if kind == POD and namespace == self._namespace else None
        if step is None or options.get("field_selector"):
            return self._cluster.list(kind, namespace, **options)
        known = self.source.pods_of(self.name)
        if known is None:
            return self._cluster.list(kind, namespace, **options)
        return Listing([pod for pod in known if not step or labels_of(pod).get(names.REPLICATED_JOB_LABEL) == step], "")

    def take_gone(self) -> tuple[Obj, ...]:
        """Return the pods of the job that were deleted since the last call, as they were last seen."""
        return self.source.take_gone(self)

    def close(self) -> None:
        """End the view. Idempotent."""
        if self._is_open:
            self._is_open = False
            self._pods.close(self)

    def _step(self, selector: str) -> str | None:
        """Return the step that a selector of the job's pods names, "" for all steps; None for another selector."""
        wanted = dict(part.split("=", 1) for part in selector.split(",") if "=" in part and "!" not in part)
        if len(wanted) != len(selector.split(",")) or wanted.pop(names.JOBSET_NAME_LABEL, "") != self.name:
            return None
        step = wanted.pop(names.REPLICATED_JOB_LABEL, "")
        return None if wanted else step


class _Watch:
    """One reflector, with the pods by job. `views` are those of each awaited job."""

    def __init__(self, cluster: Cluster, namespace: str, name: str, seconds: int):
        self.views: dict[str, set[PodsOfJob]] = {}
        self._pods: dict[str, dict[str, Obj]] = {}
        self._lock = threading.Lock()
        lister = TransformingLister(cluster, trim_pod)
        selector = f"{names.JOBSET_NAME_LABEL}={name}" if name else names.JOBSET_NAME_LABEL
        self.reflector = Reflector(
            lister, POD, namespace, handler=self._note, label_selector=selector, connection_seconds=seconds
        )
        self.reflector.start()

    def pods_of(self, name: str) -> list[Obj] | None:
        """Return the pods of a job; None while the pods cannot be read."""
        deadline = time.monotonic() + _FIRST_LIST_SECONDS
        while not self.reflector.synced.wait(_LOOK_SECONDS):
            if self.reflector.failure is not None or time.monotonic() > deadline:
                return None
        if self.reflector.failure is not None:
            return None
        with self._lock:
            return list((self._pods.get(name) or {}).values())

    def take_gone(self, view: PodsOfJob) -> tuple[Obj, ...]:
        """Return the pods of a job that are gone, once for each view."""
        with self._lock:
            gone = tuple(view.gone)
            view.gone.clear()
        return gone

    def add(self, view: PodsOfJob) -> None:
        with self._lock:
            self.views.setdefault(view.name, set()).add(view)

    def remove(self, view: PodsOfJob) -> None:
        with self._lock:
            self.views[view.name].discard(view)
            if not self.views[view.name]:
                del self.views[view.name]

    def _note(self, event: str, pod: Obj) -> None:
        name = labels_of(pod).get(names.JOBSET_NAME_LABEL, "")
        with self._lock:
            if event != "DELETED":
                self._pods.setdefault(name, {})[uid_of(pod)] = pod
                return
            pods = self._pods.get(name) or {}
            pods.pop(uid_of(pod), None)
            if not pods:
                self._pods.pop(name, None)
            for view in self.views.get(name, ()):
                view.gone.append(pod)
