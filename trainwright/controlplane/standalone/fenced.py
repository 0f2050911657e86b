"""A cluster that is written to only while a Lease is held: a worker that wakes up too late does no harm."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainwright.api.kinds import Kind
from trainwright.api.objects import Obj
from trainwright.cluster.protocol import Cluster, Listing, WatchEvent
from trainwright.controlplane.standalone.election import Election, LeaseLost


class FencedCluster:
    """A `Cluster`. Every write asks first; raises LeaseLost. What has been sent by then is the API server's to decide."""

    def __init__(self, cluster: Cluster, election: Election):
        self._cluster, self._election = cluster, election

    def _check(self) -> None:
        if not self._election.is_held():
            raise LeaseLost(f"nothing is written any more: the Lease {self._election.name} could not be renewed in time")

    def get(self, kind: Kind, name: str, namespace: str | None = None) -> Obj:
        return self._cluster.get(kind, name, namespace)

    def list(self, kind: Kind, namespace: str | None = None, **selectors: str) -> Listing:
        return self._cluster.list(kind, namespace, **selectors)

    def watch(self, kind: Kind, namespace: str | None = None, **more: Any) -> Iterator[WatchEvent]:
        return self._cluster.watch(kind, namespace, **more)

    def create(self, obj: Obj) -> Obj:
        self._check()
        return self._cluster.create(obj)

    def update(self, obj: Obj) -> Obj:
        self._check()
        return self._cluster.update(obj)

    def update_status(self, obj: Obj) -> Obj:
        self._check()
        return self._cluster.update_status(obj)

    def patch(self, kind: Kind, name: str, patch: Any, namespace: str | None = None, **more: Any) -> Obj:
        self._check()
        return self._cluster.patch(kind, name, patch, namespace, **more)

    def delete(self, kind: Kind, name: str, namespace: str | None = None, **more: Any) -> None:
        self._check()
        self._cluster.delete(kind, name, namespace, **more)

    def logs(self, name: str, namespace: str, **more: Any) -> Iterator[bytes]:
        return self._cluster.logs(name, namespace, **more)
