"""The garbage collector: deletes objects without remaining owners, and finishes foreground and orphan deletions of owners.

Owners are always checked in the API by UID, so that a new object with the same name does not keep old dependents alive.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import NamedTuple

from trainwright.api import kinds
from trainwright.api.errors import Conflict, NotFound
from trainwright.api.kinds import Kind
from trainwright.api.objects import Obj, is_deleting, name_of, namespace_of, owners_of, uid_of
from trainwright.cluster.protocol import Cluster, Propagation
from trainwright.controlplane.controllers.controller import Controller
from trainwright.controlplane.controllers.queue import Key

FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"
_SKIPPED = (kinds.EVENT, kinds.NEW_EVENT, kinds.NODE, kinds.LEASE)
log = logging.getLogger(__name__)


def garbage_collector(cluster: Cluster) -> Controller:
    collector = GarbageCollector(cluster)
    watched = [kind for kind in kinds.ALL if kind not in _SKIPPED]
    changes = {kind: collector.keys_for(kind) for kind in watched}
    return Controller("garbage-collector", collector.reconcile, {}, changes=changes)


class _OwnershipState(NamedTuple):
    """The fields of an object that determine its deletion, and that of its dependents."""

    key: Key
    owners: tuple[tuple[str, bool | None], ...]
    deleted_at: str
    finalizers: tuple[str, ...]


class GarbageCollector:
    """Keys are `(resource|namespace, name)`, so that one queue serves all kinds."""

    def __init__(self, cluster: Cluster):
        self._cluster = cluster
        self._lock = threading.Lock()
        self._dependents: dict[str, set[Key]] = {}
        self._owners: dict[Key, set[str]] = {}
        self._seen: dict[str, _OwnershipState] = {}
        self._kinds = {kind.resource: kind for kind in kinds.ALL}

    def keys_for(self, kind: Kind) -> Callable[[str, Obj], list[Key]]:
        """Return the mapper for one kind: a changed object to itself; a deleted one also to its dependents and owners."""

        def keys(change: str, obj: Obj) -> list[Key]:
            own = (f"{kind.resource}|{namespace_of(obj)}", name_of(obj))
            metadata = obj["metadata"]
            owners = tuple((owner["uid"], owner.get("blockOwnerDeletion")) for owner in owners_of(obj))
            seen = _OwnershipState(own, owners, metadata.get("deletionTimestamp") or "", tuple(metadata.get("finalizers") or ()))
            with self._lock:
                if change == "DELETED":
                    self._seen.pop(uid_of(obj), None)
                elif self._seen.get(uid_of(obj)) == seen:
                    return []  # most changes affect only the status
                else:
                    self._seen[uid_of(obj)] = seen
                for owner in owners_of(obj):
                    self._dependents.setdefault(owner["uid"], set()).add(own)
                    self._owners.setdefault(own, set()).add(owner["uid"])
                dependents = list(self._dependents.get(uid_of(obj), ()))
                has_live_owners = all(self._is_live(owner, namespace_of(obj)) for owner in owners_of(obj))
            if change != "DELETED" and not is_deleting(obj):
                return [] if has_live_owners else [own]
            owner_keys = [self._owner_key(owner, namespace_of(obj)) for owner in owners_of(obj)]
            return [own, *dependents, *(key for key in owner_keys if key is not None)]

        return keys

    def reconcile(self, key: Key) -> float | None:
        resource, _, namespace = key[0].partition("|")
        kind = self._kinds[resource]
        try:
            obj = self._cluster.get(kind, key[1], namespace or None)
        except NotFound:  # deleted: its dependents were queued by that event
            self._forget(key)
            return None
        if is_deleting(obj):
            return self._finish_deletion(kind, obj)
        if owners_of(obj):
            self._collect(kind, obj)
        return None

    def _is_live(self, reference: Obj, namespace: str) -> bool:
        """Whether an owner is known and not being deleted. Its dependents are queued when it is deleted."""
        seen = self._seen.get(reference["uid"])
        return seen is not None and not seen.deleted_at and seen.key == self._owner_key(reference, namespace)

    def _collect(self, kind: Kind, obj: Obj) -> None:
        """Delete an object if all owners are deleted, or are being deleted in the foreground; else remove those references."""
        owners = [(reference, self._owner(reference, namespace_of(obj))) for reference in owners_of(obj)]
        waiting = [reference for reference, owner in owners if isinstance(owner, dict) and _waits_for_dependents(owner)]
        kept = [reference for reference, owner in owners if owner is not None and reference not in waiting]
        if kept:
            if len(kept) < len(owners):
                version = obj["metadata"]["resourceVersion"]
                patch = {"metadata": {"ownerReferences": kept, "resourceVersion": version}}
                self._cluster.patch(kind, name_of(obj), patch, namespace_of(obj) or None)
            return  # an owner is left
        propagation: Propagation = "Foreground" if waiting and self._live_dependents(obj) else "Background"
        log.info("collecting kind=%s namespace=%s name=%s", kind.kind, namespace_of(obj), name_of(obj))
        try:
            self._cluster.delete(
                kind,
                name_of(obj),
                namespace_of(obj) or None,
                propagation=propagation,
                uid=uid_of(obj),
            )
        except (NotFound, Conflict):  # deleted meanwhile, perhaps replaced by another one of its name
            return

    def _finish_deletion(self, kind: Kind, owner: Obj) -> float | None:
        finalizers = owner["metadata"].get("finalizers") or []
        if ORPHAN in finalizers:
            for dependent_kind, dependent in self._live_dependents(owner):
                kept = [reference for reference in owners_of(dependent) if reference["uid"] != uid_of(owner)]
                patch = {"metadata": {"ownerReferences": kept or None}}
                self._cluster.patch(dependent_kind, name_of(dependent), patch, namespace_of(dependent) or None)
            self._remove_finalizer(kind, owner, ORPHAN)
        elif FOREGROUND in finalizers:
            dependents = [entry for entry in self._live_dependents(owner) if _blocks(entry[1], owner)]
            for dependent_kind, dependent in dependents:
                if not is_deleting(dependent):
                    self._collect(dependent_kind, dependent)
            above = self._ancestors(owner) if dependents else set()
            if all(uid_of(dependent) in above for _, dependent in dependents):  # none, or each waits for this object in turn
                self._remove_finalizer(kind, owner, FOREGROUND)
        return None

    def _ancestors(self, obj: Obj) -> set[str]:
        """Return the UIDs of its owners, theirs and so on; of objects that own each other in a circle they are the same."""
        found: set[str] = set()
        left = [obj]
        while left:
            current = left.pop()
            for reference in owners_of(current):
                owner = self._owner(reference, namespace_of(current))
                if isinstance(owner, dict) and reference["uid"] not in found:
                    found.add(reference["uid"])
                    left.append(owner)
        return found

    def _remove_finalizer(self, kind: Kind, obj: Obj, finalizer: str) -> None:
        kept = [entry for entry in obj["metadata"]["finalizers"] if entry != finalizer]
        patch = {"metadata": {"finalizers": kept or None, "resourceVersion": obj["metadata"]["resourceVersion"]}}
        try:
            self._cluster.patch(kind, name_of(obj), patch, namespace_of(obj) or None)
        except NotFound:  # gone: nobody needs the finalizer
            return

    def _live_dependents(self, owner: Obj) -> list[tuple[Kind, Obj]]:
        with self._lock:
            keys = list(self._dependents.get(uid_of(owner), ()))
        found = []
        for key in keys:
            resource, _, namespace = key[0].partition("|")
            try:
                obj = self._cluster.get(self._kinds[resource], key[1], namespace or None)
            except NotFound:  # deleted since it was indexed
                continue
            if any(reference["uid"] == uid_of(owner) for reference in owners_of(obj)):
                found.append((self._kinds[resource], obj))
        return found

    def _owner(self, reference: Obj, namespace: str) -> Obj | str | None:
        """Return the owner, None if it is deleted, or "unknown" for a kind that is not served."""
        key = self._owner_key(reference, namespace)
        if key is None:
            return "unknown"  # never collected: nobody here can tell whether the owner exists
        resource, _, owner_namespace = key[0].partition("|")
        try:
            owner = self._cluster.get(self._kinds[resource], key[1], owner_namespace or None)
        except NotFound:  # deleted
            return None
        return owner if uid_of(owner) == reference["uid"] else None

    def _owner_key(self, reference: Obj, namespace: str) -> Key | None:
        kind = kinds.kind_of(reference)
        if kind is None:
            return None  # not served here
        return f"{kind.resource}|{namespace if kind.namespaced else ''}", reference["name"]

    def _forget(self, key: Key) -> None:
        with self._lock:
            for uid in self._owners.pop(key, ()):
                keys = self._dependents.get(uid, set())
                keys.discard(key)
                if not keys:
                    self._dependents.pop(uid, None)


def _waits_for_dependents(owner: Obj) -> bool:
    """Whether an owner is being deleted in the foreground, and waits for its dependents."""
    return is_deleting(owner) and FOREGROUND in (owner["metadata"].get("finalizers") or [])


def _blocks(dependent: Obj, owner: Obj) -> bool:
    """Whether the owner's deletion waits for this dependent."""
    return any(reference["uid"] == uid_of(owner) and reference.get("blockOwnerDeletion") for reference in owners_of(dependent))
