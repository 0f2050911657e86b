"""A control plane without threads: the real controllers over the real server, taking one key at a time when the test says so.

Changes are delivered when the test says so too, time stands still until it is moved, a write can fail, and the controllers can die
before or after any write.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest import mock

import factories
import orjson

from trainwright.api.errors import ApiError, NotFound
from trainwright.api.kinds import JOB, JOBSET, NODE, POD, TRAINJOB, Kind
from trainwright.api.times import rfc3339
from trainwright.cluster.reflector import Handler
from trainwright.controlplane.apiserver.storage.store import Store
from trainwright.controlplane.apiserver.verbs.resource_server import ResourceServer
from trainwright.controlplane.controllers.controller import Controller, TerminalError
from trainwright.controlplane.controllers.garbage import garbage_collector
from trainwright.controlplane.controllers.housekeeping import pod_removal
from trainwright.controlplane.controllers.job import job_controller
from trainwright.controlplane.controllers.jobset import jobset_controller
from trainwright.controlplane.controllers.loop import StoreInformer
from trainwright.controlplane.controllers.queue import KeyQueue
from trainwright.controlplane.controllers.scheduler import scheduler
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.materialize import Settings
from trainwright.trainer.trainjob import trainjob_controller
from trainwright.trainer.webhooks import VALIDATORS

Obj = dict[str, Any]
_WRITES = ("create", "update", "update_status", "patch", "delete", "bind")
_CLOCKS = ("job.reconciler", "jobset.reconciler")


class Crash(BaseException):
    """The process of the controllers is gone; no reconciler may catch it."""


class Writing:
    """The cluster as the controllers have it: `before` is asked at each write and may raise, `after` when it is done."""

    def __init__(self, cluster: EmbeddedCluster):
        self._cluster = cluster
        self.writes: list[str] = []
        self.before: Callable[[str], None] = lambda _what: None
        self.after: Callable[[str], None] = lambda _what: None

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._cluster, name)
        if name not in _WRITES:
            return found

        def write(*arguments: Any, **options: Any) -> Any:
            about = arguments[0]
            what = f"{name} {about.kind if isinstance(about, Kind) else about.get('kind') if isinstance(about, dict) else about}"
            self.before(what)
            answer = found(*arguments, **options)
            self.writes.append(what)
            self.after(what)
            return answer

        return write


class Stepped:
    """`make` gives the controllers; they are made anew after a crash."""

    def __init__(
        self,
        make: Callable[[Any, Stepped], list[Controller]] | None = None,
        *,
        cpu: str = "8",
        node: bool = True,
    ):
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self._make = make or all_controllers
        self._stack = ExitStack()
        outer = self

        class Frozen(datetime):
            @classmethod
            def now(cls, tz: Any = None) -> Any:
                return outer.now

        for module in _CLOCKS:
            self._stack.enter_context(mock.patch(f"trainwright.controlplane.controllers.{module}.datetime", Frozen))
        self.store = Store(":memory:")
        self._stack.callback(self.store.close)
        self.server = ResourceServer(self.store, clock=lambda: self.now, validators=VALIDATORS)
        self.cluster = EmbeddedCluster(self.server)
        self.writing = Writing(EmbeddedCluster(self.server, shared=True))
        self.controllers: list[Controller] = []
        self.feeds: list[StoreInformer] = []
        self.woken: list[StoreInformer] = []
        self.errors: list[str] = []
        if node:
            self.add_node(cpu)
        self.start()

    def __enter__(self) -> Stepped:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def add_node(self, cpu: str = "8", **spec: Any) -> None:
        whole = {"trainwright.dev/single-node": "true"}
        metadata = {"name": "local", "labels": {"kubernetes.io/hostname": "local"}, "annotations": whole}
        node = {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec}
        resources = {"cpu": cpu, "memory": "64Gi", "pods": "1000"}
        self.cluster.create({**node, "status": {"capacity": resources, "allocatable": resources}})

    def start(self) -> None:
        """New controllers, that know nothing; they hear of everything that is there when it is delivered."""
        for feed in self.feeds:
            feed.close()
        self.writing.before = self.writing.after = lambda _what: None
        self.controllers, self.woken = self._make(self.writing, self), []
        followers: dict[Kind, list[Handler]] = {}
        for controller in self.controllers:
            controller.queue = KeyQueue(lambda: self.now.timestamp())
            for kind, handler in controller.handlers().items():
                followers.setdefault(kind, []).append(handler)
        # The loop beside the server begins the same way: what is there is told at once.
        self.feeds = [StoreInformer(self.server, kind, handlers, self._wake) for kind, handlers in followers.items()]

    def _wake(self, feed: StoreInformer) -> None:
        if feed not in self.woken:
            self.woken.append(feed)

    def deliver(self, which: int = 0) -> bool:
        if not self.woken:
            return False
        self.woken.pop(which % len(self.woken)).deliver()
        return True

    def step(self, which: int = 0) -> bool:
        """Reconcile one key of one controller that has any; False when none has. Raises Crash."""
        ready = [controller for controller in self.controllers if len(controller.queue)]
        if not ready:
            return False
        controller = ready[which % len(ready)]
        key = controller.queue.poll()
        assert key is not None
        self._work(controller, key)
        return True

    def _work(self, controller: Controller, key: tuple[str, str]) -> None:
        """As a controller works on a key; but an error that is none of the API's ends the test."""
        failed = True
        try:
            requeue_after = controller.reconcile(key)
            failed = False
            if requeue_after is not None:
                controller.queue.add_after(key, requeue_after)
        except (ApiError, TerminalError) as error:
            self.errors.append(f"{controller.name} {key}: {error}")
        controller.queue.done(key, failed=failed)

    def settle(self, steps: int = 5000) -> None:
        """Until nothing is left to be done now."""
        for _ in range(steps):
            if not self.deliver() and not self.step():
                return
        raise AssertionError(
            f"not settled after {steps} steps; last writes: {self.writing.writes[-20:]}, errors: {self.errors[-5:]}"
        )

    def next_due(self) -> float | None:
        """Seconds until somebody has planned to look again."""
        waits = [wait for controller in self.controllers if (wait := controller.queue.seconds_to_next()) is not None]
        return min(waits, default=None)

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def settle_in_time(self, seconds: float = 3600) -> None:
        """Until nothing is left to be done, moving time on to what is planned within so many seconds."""
        until = self.now + timedelta(seconds=seconds)
        self.settle()
        while (wait := self.next_due()) is not None and self.now + timedelta(seconds=wait) <= until:
            self.advance(wait + 0.001)
            self.settle()

    def own_objects_changed(self) -> list[str]:
        """Objects of the store that somebody who shares them has changed: what is read is then not what is stored."""
        return [
            f"{kind.kind} {record.key[1]}"
            for kind in (TRAINJOB, JOBSET, JOB, POD)
            for record in self.store.list(kind.resource)[0]
            if record.object != orjson.loads(record.data)
        ]

    def pods(self) -> list[Obj]:
        return self.cluster.list(POD).items

    def set_pod(self, name: str, **status: Any) -> None:
        self.cluster.patch(POD, name, {"status": status}, "default", subresource="status")

    def end_pod(self, pod: Obj, code: int) -> None:
        """As the node tells of a pod whose container has ended."""
        ended = {"exitCode": code, "finishedAt": rfc3339(self.now), "startedAt": rfc3339(self.now), "reason": "Ended"}
        container = {"name": pod["spec"]["containers"][0]["name"], "state": {"terminated": ended}, "restartCount": 0}
        missing = {"ready": False, "image": "example.com/main", "imageID": "example.com/main"}
        self.set_pod(
            pod["metadata"]["name"],
            phase="Failed" if code else "Succeeded",
            containerStatuses=[{**container, **missing}],
        )

    def gone_pods(self) -> None:
        """As the node does it: what is being deleted there ends."""
        for pod in self.pods():
            if pod["metadata"].get("deletionTimestamp") and pod["spec"].get("nodeName"):
                if pod["status"]["phase"] not in ("Succeeded", "Failed"):
                    self.end_pod(pod, 137)
                try:
                    self.cluster.delete(POD, pod["metadata"]["name"], "default", grace_period_seconds=0)
                except NotFound:
                    continue

    def get(self, kind: Kind, name: str) -> Obj | None:
        try:
            return self.cluster.get(kind, name, None if kind is NODE else "default")
        except NotFound:
            return None


def all_controllers(cluster: Any, world: Stepped) -> list[Controller]:
    return [
        trainjob_controller(cluster, Settings, bundled=True, clock=lambda: world.now),
        jobset_controller(cluster),
        job_controller(cluster),
        garbage_collector(cluster),
        scheduler(cluster),
        pod_removal(cluster),
    ]


def failing(which: int, error: ApiError | Crash) -> Callable[[str], None]:
    """Raises at the write of that number, counted from now."""
    left = [which]

    def count(_what: str) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise error

    return count


def sized_jobset(name: str = "set", **spec: Any) -> Obj:
    """`steps`: name, replicas, pods, cpu of each, and more of the replicated job."""
    steps = spec.pop("steps", [("main", 1, 2, "1", {})])
    replicated = []
    for step, replicas, pods, cpu, more in steps:
        pod_spec = {"restartPolicy": "Never", "containers": [_container(cpu)], **more.get("pod", {})}
        sizes = {"parallelism": pods, "completions": pods, "completionMode": "Indexed", "backoffLimit": 0}
        rest = {key: value for key, value in more.items() if key not in ("job", "pod")}
        made = factories.replicated_job(step, replicas=replicas, pod_spec=pod_spec, **{**sizes, **more.get("job", {})})
        replicated.append({**made, **rest})
    return factories.jobset(name, *replicated, **spec)


def sized_pod(name: str, cpu: str = "1", **fields: Any) -> Obj:
    return factories.pod(name, container=_container(cpu), **fields)


def sized_trainjob(name: str = "train", nodes: int = 2, cpu: str = "1", **fields: Any) -> Obj:
    trainer = {"numNodes": nodes, "resourcesPerNode": {"requests": {"cpu": cpu}}}
    return factories.trainjob(name, **{"trainer": trainer, **fields})


def _container(cpu: str) -> Obj:
    return {"name": "main", "image": "example.com/main", "resources": {"requests": {"cpu": cpu}}}


def told(pod: Obj) -> str:
    """Why a pod is not scheduled."""
    for entry in (pod.get("status") or {}).get("conditions") or []:
        if entry["type"] == "PodScheduled" and entry["status"] == "False":
            return str(entry.get("message", ""))
    return ""


__all__ = ["TRAINJOB", "Crash", "Stepped", "all_controllers", "failing", "sized_jobset", "sized_pod", "sized_trainjob", "told"]
