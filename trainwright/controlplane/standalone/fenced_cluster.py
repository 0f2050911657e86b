"""A cluster that allows writes only while a Lease is held, so that a delayed worker cannot write after losing it."""

from __future__ import annotations

from typing import Any, Unpack

from trainwright.api.kinds import Kind
from trainwright.api.objects import Obj
from trainwright.cluster.protocol import Cluster, CreateOptions, DelegatingCluster, DeleteOptions, PatchOptions
from trainwright.controlplane.standalone.leader_election import LeaderElector, LeaseLost


class FencedCluster(DelegatingCluster):
    """A `Cluster` that raises LeaseLost for writes without the Lease. Requests already sent are not affected."""

    def __init__(self, cluster: Cluster, elector: LeaderElector):
        super().__init__(cluster)
        self._elector = elector

    def _check(self) -> None:
        if not self._elector.is_held():
            raise LeaseLost(f"write rejected: the Lease {self._elector.name} could not be renewed in time")

    def create(self, obj: Obj, **options: Unpack[CreateOptions]) -> Obj:
        self._check()
        return super().create(obj, **options)

    def update(self, obj: Obj) -> Obj:
        self._check()
        return super().update(obj)

    def update_status(self, obj: Obj) -> Obj:
        self._check()
        return super().update_status(obj)

    def patch(self, kind: Kind, name: str, patch: Any, namespace: str | None = None, **options: Unpack[PatchOptions]) -> Obj:
        self._check()
        return super().patch(kind, name, patch, namespace, **options)

    def delete(self, kind: Kind, name: str, namespace: str | None = None, **options: Unpack[DeleteOptions]) -> None:
        self._check()
        super().delete(kind, name, namespace, **options)
