"""Base class of `Cluster` wrappers: delegates every call, so that a wrapper overrides only what it changes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Unpack

from trainwright.api.kinds import Kind
from trainwright.api.objects import Obj
from trainwright.cluster.options import CreateOptions, DeleteOptions, ListOptions, LogOptions, PatchOptions, WatchOptions
from trainwright.cluster.protocol import Cluster, Listing, WatchEvent


class DelegatingCluster:
    """Implements `Cluster` by delegating to `cluster`."""

    def __init__(self, cluster: Cluster):
        self._cluster = cluster

    @property
    def host(self) -> str | None:
        """The address of the API server, by which a process caches what is the same for all its clients; None without one."""
        found: str | None = getattr(self._cluster, "host", None)
        return found

    def get(self, kind: Kind, name: str, namespace: str | None = None) -> Obj:
        return self._cluster.get(kind, name, namespace)

    def list(self, kind: Kind, namespace: str | None = None, **options: Unpack[ListOptions]) -> Listing:
        return self._cluster.list(kind, namespace, **options)

    def watch(self, kind: Kind, namespace: str | None = None, **options: Unpack[WatchOptions]) -> Iterator[WatchEvent]:
        return self._cluster.watch(kind, namespace, **options)

    def create(self, obj: Obj, **options: Unpack[CreateOptions]) -> Obj:
        return self._cluster.create(obj, **options)

    def update(self, obj: Obj) -> Obj:
        return self._cluster.update(obj)

    def update_status(self, obj: Obj) -> Obj:
        return self._cluster.update_status(obj)

    def patch(self, kind: Kind, name: str, patch: Any, namespace: str | None = None, **options: Unpack[PatchOptions]) -> Obj:
        return self._cluster.patch(kind, name, patch, namespace, **options)

    def delete(self, kind: Kind, name: str, namespace: str | None = None, **options: Unpack[DeleteOptions]) -> None:
        self._cluster.delete(kind, name, namespace, **options)

    def logs(self, name: str, namespace: str, **options: Unpack[LogOptions]) -> Iterator[bytes]:
        return self._cluster.logs(name, namespace, **options)
