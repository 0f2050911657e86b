"""A cluster that is written to only while a Lease is held: a worker that wakes up too late does no harm."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainwright.api.kinds import Kind
from trainwright.api.objects import Obj
from trainwright.cluster.protocol import Cluster, Listing, PatchType, Propagation, WatchEvent
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

    def list(self, kind: Kind, namespace: str | None = None, *, label_selector: str = "", field_selector: str = "") -> Listing:
        return self._cluster.list(kind, namespace, label_selector=label_selector, field_selector=field_selector)

    def watch(
        self,
        kind: Kind,
        namespace: str | None = None,
        *,
        resource_version: str,
        label_selector: str = "",
        field_selector: str = "",
        timeout_seconds: int = 300,
    ) -> Iterator[WatchEvent]:
        return self._cluster.watch(
            kind,
            namespace,
            resource_version=resource_version,
            label_selector=label_selector,
            field_selector=field_selector,
            timeout_seconds=timeout_seconds,
        )

    def create(self, obj: Obj) -> Obj:
        self._check()
        return self._cluster.create(obj)

    def update(self, obj: Obj) -> Obj:
        self._check()
        return self._cluster.update(obj)

    def update_status(self, obj: Obj) -> Obj:
        self._check()
        return self._cluster.update_status(obj)

    def patch(
        self,
        kind: Kind,
        name: str,
        patch: Any,
        namespace: str | None = None,
        *,
        patch_type: PatchType = "merge",
        subresource: str | None = None,
        field_manager: str = "trainwright",
        force: bool = False,
    ) -> Obj:
        self._check()
        return self._cluster.patch(
            kind, name, patch, namespace, patch_type=patch_type, subresource=subresource, field_manager=field_manager, force=force
        )

    def delete(
        self,
        kind: Kind,
        name: str,
        namespace: str | None = None,
        *,
        propagation: Propagation = "Background",
        uid: str | None = None,
        resource_version: str | None = None,
        grace_period_seconds: int | None = None,
    ) -> None:
        self._check()
        self._cluster.delete(
            kind,
            name,
            namespace,
            propagation=propagation,
            uid=uid,
            resource_version=resource_version,
            grace_period_seconds=grace_period_seconds,
        )

    def logs(
        self,
        name: str,
        namespace: str,
        *,
        container: str | None = None,
        follow: bool = False,
        tail_lines: int | None = None,
        limit_bytes: int | None = None,
        since_time: str = "",
        timestamps: bool = False,
        previous: bool = False,
    ) -> Iterator[bytes]:
        return self._cluster.logs(
            name,
            namespace,
            container=container,
            follow=follow,
            tail_lines=tail_lines,
            limit_bytes=limit_bytes,
            since_time=since_time,
            timestamps=timestamps,
            previous=previous,
        )
