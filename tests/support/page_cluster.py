"""A cluster in memory for tests of the page: objects have the ages, containers the logs, and users the rights that a test says."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from factories import merged, pod

from trainwright.api.kinds import EVENT, POD, TRAINJOB, Kind
from trainwright.api.names import COMPLETION_INDEX, JOBSET_NAME_LABEL, REPLICATED_JOB_LABEL
from trainwright.api.objects import Obj, name_of, namespace_of
from trainwright.api.times import rfc3339
from trainwright.controlplane.apiserver.storage.object_table import Record
from trainwright.controlplane.apiserver.storage.store import Store
from trainwright.controlplane.apiserver.verbs.resource_server import ResourceServer
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.runtimes import bundled_runtimes
from trainwright.trainer.webhooks import VALIDATORS

START = datetime.now(UTC)


def ago(minutes: float) -> str:
    """Return the time so many minutes before the tests began."""
    return rfc3339(START - timedelta(minutes=minutes))


class PageCluster(EmbeddedCluster):
    """Objects are as old as `created` says, logs are those in `printed`, by pod, and all reviews of access are answered with yes.

    `changes` are merged into objects, by kind and name, for values that this API server refuses, and another might not.
    """

    host = "https://127.0.0.1:6443"

    def __init__(self, server: ResourceServer):
        super().__init__(server)
        self.created: dict[tuple[str, str], str] = {}
        self.changes: dict[tuple[str, str], Obj] = {}
        self.printed: dict[str, list[bytes]] = {}
        self._counts = itertools.count()
        self.more = threading.Condition()
        self._is_closed = False

    def request(self, _method: str, path: str, _body: Any = None) -> Any:
        """Answer a review."""
        assert path.endswith("selfsubjectaccessreviews"), path
        return {"status": {"allowed": True}}

    def get(self, kind: Kind, name: str, namespace: str | None = None) -> Obj:
        return self._aged(super().get(kind, name, namespace))

    def _given(self, record: Record) -> Obj:
        return self._aged(super()._given(record))

    def _aged(self, obj: Obj) -> Obj:
        if created := self.created.get((str(obj.get("kind")), name_of(obj))):
            obj["metadata"]["creationTimestamp"] = created
        return merged(obj, self.changes.get((str(obj.get("kind")), name_of(obj)), {}))

    def logs(self, name: str, namespace: str, **options: Any) -> Iterator[bytes]:
        """Yield the log of a pod, and follow it until the cluster is closed, if it runs."""
        running = self.get(POD, name, namespace)["status"].get("phase") == "Running"
        lines = self._log(name, follows=running and bool(options.get("follow")))
        return lines if options.get("timestamps") else (line.partition(b" ")[2] for line in lines)

    def write(self, name: str, *lines: bytes, minutes: float = 0) -> None:
        """Append lines, printed one after the other so many minutes ago, to the log of a pod."""
        begun = ago(minutes).encode().removesuffix(b"Z")
        with self.more:
            printed = (b"%s.%09dZ %s" % (begun, next(self._counts), line) for line in lines)
            self.printed.setdefault(name, []).extend(printed)
            self.more.notify_all()

    def stop_logs(self) -> None:
        """End the logs that are followed."""
        with self.more:
            self._is_closed = True
            self.more.notify_all()

    def _log(self, name: str, *, follows: bool) -> Iterator[bytes]:
        told = 0
        while True:
            with self.more:
                lines = self.printed.get(name, [])
                while follows and not self._is_closed and told == len(self.printed.get(name, [])):
                    self.more.wait(1)
                lines = self.printed.get(name, [])[told:]
            yield from lines
            told += len(lines)
            if not follows or self._is_closed:
                return

    def add_job(self, trainjob: Obj, *, minutes: float = 0, **status: Any) -> Obj:
        """Create a TrainJob of this age, with a status."""
        self.created["TrainJob", name_of(trainjob)] = ago(minutes)
        made = self.create(trainjob)
        return self.update_status({**made, "status": status}) if status else made

    def add_pod(
        self, trainjob: Obj, rank: int = 0, *, minutes: float = 0, node: str = "", phase: str = "Running", **state: Any
    ) -> Obj:
        """Create a pod of a TrainJob; `state` is that of its container."""
        name = f"{name_of(trainjob)}-node-0-{rank}-x{rank}k9f"
        labels = {JOBSET_NAME_LABEL: name_of(trainjob), REPLICATED_JOB_LABEL: "node", COMPLETION_INDEX: str(rank)}
        self.created["Pod", name] = ago(minutes)
        fields: dict[str, Any] = {"nodeName": node} if node else {}
        made = self.create(pod(name, namespace=namespace_of(trainjob), labels=labels, container={"name": "node"}, **fields))
        entry = {"name": "node", "image": "main", "imageID": "", "ready": "running" in state, "restartCount": 0, "state": state}
        placed = {"type": "PodScheduled", "status": "True", "lastTransitionTime": ago(minutes)}
        return self.update_status({**made, "status": {"phase": phase, "conditions": [placed], "containerStatuses": [entry]}})

    def add_event(self, subject: Obj, reason: str, message: str, *, minutes: float = 0, kind: str = "Normal") -> None:
        """Create an event about an object."""
        name = f"{name_of(subject)[:200]}.{len(self.list(EVENT).items):x}"
        involved = {"kind": subject["kind"], "name": name_of(subject), "namespace": namespace_of(subject)}
        metadata = {"name": name, "namespace": namespace_of(subject)}
        times = {"firstTimestamp": ago(minutes), "lastTimestamp": ago(minutes), "count": 1}
        about = {"type": kind, "reason": reason, "message": message, **times}
        self.create({"apiVersion": "v1", "kind": "Event", "metadata": metadata, "involvedObject": involved, **about})

    def report(self, name: str, percent: int | None, namespace: str = "default", **metrics: str) -> None:
        """Report progress, as a training does."""
        named = [{"name": key, "value": value} for key, value in metrics.items()]
        told = {"progressPercentage": percent, "metrics": named, "lastUpdatedTime": ago(0)}
        self.patch(TRAINJOB, name, {"status": {"trainerStatus": told}}, namespace, subresource="status")


@contextmanager
def page_cluster(*objects: Obj) -> Iterator[PageCluster]:
    """Open a cluster with the bundled runtimes, without controllers and node."""
    store = Store(":memory:")
    cluster = PageCluster(ResourceServer(store, validators=VALIDATORS))
    try:
        for each in (*bundled_runtimes(), *objects):
            cluster.create(each)
        yield cluster
    finally:
        cluster.stop_logs()
        cluster.close()
        store.close()


def condition(kind: str, minutes: float, reason: str = "", message: str = "", status: str = "True") -> Obj:
    """Build a condition."""
    at = ago(minutes)
    return cast(Obj, {"type": kind, "status": status, "reason": reason or kind, "message": message, "lastTransitionTime": at})
