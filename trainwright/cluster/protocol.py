"""The interface through which all parts of Trainwright use a Kubernetes API, whatever implements it.

Objects are dicts. Errors are those of `trainwright.api.errors`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol, Unpack

from trainwright.api.kinds import Kind
from trainwright.api.objects import Obj
from trainwright.cluster.options import CreateOptions, DeleteOptions, ListOptions, LogOptions, PatchOptions, WatchOptions


@dataclass(frozen=True)
class Listing:
    """A consistent list: its items and the resource version to watch from."""

    items: list[Obj]
    resource_version: str


@dataclass(frozen=True)
class WatchEvent:
    """`type` is ADDED, MODIFIED, DELETED or BOOKMARK; a bookmark's object carries only its resource version."""

    type: str
    object: Obj

    @property
    def resource_version(self) -> str:
        return str(self.object.get("metadata", {}).get("resourceVersion", ""))


class Cluster(Protocol):
    """A Kubernetes API. `namespace` is None for cluster-scoped kinds and for lists over all namespaces."""

    def get(self, kind: Kind, name: str, namespace: str | None = None) -> Obj:
        """Return one object. Raises NotFound."""
        ...

    def list(self, kind: Kind, namespace: str | None = None, **options: Unpack[ListOptions]) -> Listing:
        """Return all matching objects, from all pages."""
        ...

    def watch(self, kind: Kind, namespace: str | None = None, **options: Unpack[WatchOptions]) -> Iterator[WatchEvent]:
        """Yield the changes after `resource_version` on one connection, until the server closes it.

        Raises Expired if that version is no longer available: list again.
        """
        ...

    def create(self, obj: Obj, **options: Unpack[CreateOptions]) -> Obj:
        """Create an object; returns it as stored. Raises AlreadyExists, Invalid, Forbidden."""
        ...

    def update(self, obj: Obj) -> Obj:
        """Replace an object. Raises Conflict if its resource version is stale."""
        ...

    def update_status(self, obj: Obj) -> Obj:
        """Replace an object's status through the status subresource. Raises Conflict if its resource version is stale."""
        ...

    def patch(self, kind: Kind, name: str, patch: Any, namespace: str | None = None, **options: Unpack[PatchOptions]) -> Obj:
        """Patch an object; returns the result. Raises NotFound, Conflict, Invalid."""
        ...

    def delete(self, kind: Kind, name: str, namespace: str | None = None, **options: Unpack[DeleteOptions]) -> None:
        """Delete an object. Raises NotFound, and Conflict if a precondition does not hold."""
        ...

    def logs(self, name: str, namespace: str, **options: Unpack[LogOptions]) -> Iterator[bytes]:
        """Yield a container's log in chunks. Raises NotFound, or BadRequest if the container has not started."""
        ...
