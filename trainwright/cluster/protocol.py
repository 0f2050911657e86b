"""The one door: what every part of Trainwright may ask of a Kubernetes API, whatever stands behind it.

Dict in, dict out. Errors are those of `trainwright.api.errors`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from trainwright.api.kinds import Kind
from trainwright.api.objects import Obj

PatchType = Literal["merge", "json", "apply"]
Propagation = Literal["Background", "Foreground", "Orphan"]


@dataclass(frozen=True)
class Listing:
    """A list at one moment: its items and the resource version to watch from."""

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
        """One object. Raises NotFound."""
        ...

    def list(self, kind: Kind, namespace: str | None = None, *, label_selector: str = "", field_selector: str = "") -> Listing:
        """All objects that match, every page of them."""
        ...

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
        """Changes after `resource_version` on one connection; ends when the server closes it.

        Raises Expired when that version is no longer known: list again.
        """
        ...

    def create(self, obj: Obj) -> Obj:
        """Raises AlreadyExists, Invalid, Forbidden."""
        ...

    def update(self, obj: Obj) -> Obj:
        """Replace an object. Raises Conflict when its resource version is stale."""
        ...

    def update_status(self, obj: Obj) -> Obj:
        """Replace an object's status through the status subresource. Raises Conflict when stale."""
        ...

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
        """Change an object. `force` is for apply: take fields over from other managers."""
        ...

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
        """Delete an object; with `uid` only that very one, with `resource_version` only as it was (Conflict otherwise).

        Raises NotFound.
        """
        ...

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
        """A container's log in chunks. Raises NotFound, or BadRequest when it has not started.

        `since_time` is RFC 3339, of which a kubelet heeds whole seconds; `timestamps` begins each line with its time and a
        space; `previous` is the run before the last restart.
        """
        ...
