"""The controllers' cluster: one watch per kind for all controllers, reads from memory, writes to the API.

A write is stored in memory before it returns and is never replaced by an older version, so controllers read their own writes.
Writes of others arrive through the watch. Objects of one kind are indexed like in client-go's Indexer.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Any, Unpack

from trainwright.api import names
from trainwright.api.errors import NotFound, ServiceUnavailable
from trainwright.api.integers import parse_count
from trainwright.api.kinds import Kind, kind_of
from trainwright.api.objects import Obj, copy_of, is_deleting, labels_of, name_of, namespace_of, uid_of
from trainwright.api.selectors.selection import label_selector as parsed_selector
from trainwright.api.times import now
from trainwright.cluster.protocol import (
    Cluster,
    CreateOptions,
    DelegatingCluster,
    DeleteOptions,
    Listing,
    ListOptions,
    PatchOptions,
)
from trainwright.cluster.reflector import Handler, Reflector

SYNC_SECONDS = 30.0
_POLL_SECONDS = 0.5
_INDEXED = (names.JOB_NAME_LABEL, names.JOBSET_NAME_LABEL)
"""Labels with an index, for lists of the pods of a Job and of the Jobs of a JobSet."""
_MAX_DELETED_UIDS = 10_000
Key = tuple[str, str]


class LocalCache(DelegatingCluster):
    """A `Cluster` that reads cached kinds from memory and others from the API."""

    def __init__(self, cluster: Cluster, cached: tuple[Kind, ...], stop: threading.Event, namespace: str | None = None):
        """`namespace`: watch only this one."""
        super().__init__(cluster)
        self._stop, self._namespace = stop, namespace
        self._indexers = {kind: Indexer() for kind in cached}
        self._handlers: dict[Kind, list[Handler]] = {kind: [] for kind in cached}
        self._reflectors: dict[Kind, Reflector] = {}

    def add_event_handler(self, kind: Kind, handler: Handler) -> None:
        """Call the handler for every change of a kind, cached or not. Must be called before `start`."""
        self._handlers.setdefault(kind, []).append(handler)

    def start(self) -> list[threading.Thread]:
        """Start watches in daemon threads that end after `stop` is set."""
        for kind in self._handlers:
            handler = self._handler_for(kind)
            self._reflectors[kind] = Reflector(
                self._cluster,
                kind,
                self._namespace if kind.namespaced else None,
                handler=handler,
                stop=self._stop,
                transform=_trim,
            )
        return [reflector.start() for reflector in self._reflectors.values()]

    def unsynced(self) -> str:
        """Return the kinds that are not listed yet, with errors if known; empty if all are listed."""
        return "; ".join(_sync_error(kind, watch) for kind, watch in self._reflectors.items() if not watch.synced.is_set())

    def get(self, kind: Kind, name: str, namespace: str | None = None) -> Obj:
        indexer = self._synced(kind)
        if indexer is None:
            return self._cluster.get(kind, name, namespace)
        found = indexer.get((namespace or "", name))
        if found is None:
            raise NotFound(f'{kind.resource} "{name}" not found')
        return copy_of(found)

    def list(self, kind: Kind, namespace: str | None = None, **options: Unpack[ListOptions]) -> Listing:
        indexer = self._synced(kind)
        if indexer is None or options.get("field_selector"):
            return self._cluster.list(kind, namespace, **options)
        label_selector = options.get("label_selector", "")
        matches = parsed_selector(label_selector)
        found = [copy_of(obj) for obj in indexer.list_candidates(namespace, label_selector) if matches(obj)]
        return Listing(found, "")

    def create(self, obj: Obj, **options: Unpack[CreateOptions]) -> Obj:
        created = self._cluster.create(obj, **options)
        return created if options.get("dry_run") else self._store(created)

    def update(self, obj: Obj) -> Obj:
        return self._store(self._cluster.update(obj))

    def update_status(self, obj: Obj) -> Obj:
        return self._store(self._cluster.update_status(obj))

    def patch(self, kind: Kind, name: str, patch: Any, namespace: str | None = None, **options: Unpack[PatchOptions]) -> Obj:
        return self._store(self._cluster.patch(kind, name, patch, namespace, **options))

    def delete(self, kind: Kind, name: str, namespace: str | None = None, **options: Unpack[DeleteOptions]) -> None:
        indexer = self._indexers.get(kind)
        before = indexer.get((namespace or "", name)) if indexer is not None else None
        self._cluster.delete(kind, name, namespace, **options)
        if indexer is not None and before is not None:
            indexer.mark_deleting(before)

    def _synced(self, kind: Kind) -> Indexer | None:
        """Return the indexer of a cached kind after its first list, else None. Raises ServiceUnavailable on timeout."""
        indexer = self._indexers.get(kind)
        if indexer is None:
            return None  # not cached: read from the API
        watch, deadline = self._reflectors[kind], time.monotonic() + SYNC_SECONDS
        while not watch.synced.wait(_POLL_SECONDS):
            if self._stop.is_set() or time.monotonic() > deadline:
                raise ServiceUnavailable(f"not listed {_sync_error(kind, watch)}")
        return indexer

    def _handler_for(self, kind: Kind) -> Handler:
        indexer, handlers = self._indexers.get(kind), self._handlers[kind]

        def handle(event: str, obj: Obj) -> None:
            if indexer is not None and event == "DELETED":
                indexer.remove(obj)
            elif indexer is not None:
                indexer.store(obj)
            for handler in handlers:
                handler(event, obj)

        return handle

    def _store(self, obj: Obj) -> Obj:
        kind = kind_of(obj)
        indexer = self._indexers.get(kind) if kind is not None else None
        if kind is not None and indexer is not None:
            indexer.store(copy_of(obj))
        return obj


def _trim(obj: Obj) -> Obj:
    """Keep only the fields needed after deletion, identity and owners, to bound memory."""
    fields = ("name", "namespace", "uid", "resourceVersion", "labels", "ownerReferences", "deletionTimestamp")
    metadata = {key: value for key, value in obj["metadata"].items() if key in fields}
    return {"apiVersion": obj.get("apiVersion"), "kind": obj.get("kind"), "metadata": metadata}


def _sync_error(kind: Kind, watch: Reflector) -> str:
    return kind.resource + (f": {watch.failure[1].message}" if watch.failure else "")


class Indexer:
    """Objects of one kind, by key and by label. Stored objects are replaced, never modified."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._objects: dict[Key, Obj] = {}
        self._by_label: dict[tuple[str, str], set[Key]] = {}
        self._deleted: deque[str] = deque(maxlen=_MAX_DELETED_UIDS)
        self._deleted_uids: set[str] = set()

    def get(self, key: Key) -> Obj | None:
        with self._lock:
            return self._objects.get(key)

    def list_candidates(self, namespace: str | None, selector: str) -> list[Obj]:
        """Return objects that may match: by the selector's first label if that is indexed, else all."""
        label, _, value = selector.partition(",")[0].partition("=")
        with self._lock:
            if label in _INDEXED and value and "=" not in value:
                found = [self._objects[key] for key in sorted(self._by_label.get((label, value), ()))]
            else:
                found = list(self._objects.values())
        return [obj for obj in found if namespace is None or namespace_of(obj) == namespace]

    def store(self, obj: Obj) -> None:
        """Store the object, unless a newer version is stored."""
        key = (namespace_of(obj), name_of(obj))
        with self._lock:
            known = self._objects.get(key)
            if uid_of(obj) in self._deleted_uids or (known is not None and _version(known) > _version(obj)):
                return  # a response that arrives later than the news of the watch
            self._put(key, obj)

    def mark_deleting(self, before: Obj) -> None:
        """Mark an object as deleting after its deletion was requested, until the watch reports it."""
        key = (namespace_of(before), name_of(before))
        with self._lock:
            known = self._objects.get(key)
            if known is not None and uid_of(known) == uid_of(before) and not is_deleting(known):
                self._put(key, {**known, "metadata": {**known["metadata"], "deletionTimestamp": now()}})

    def remove(self, obj: Obj) -> None:
        """Remove a deleted object. Its UID is remembered, because the response to a write may arrive later."""
        key, uid = (namespace_of(obj), name_of(obj)), uid_of(obj)
        with self._lock:
            if len(self._deleted) == _MAX_DELETED_UIDS:
                self._deleted_uids.discard(self._deleted[0])
            self._deleted.append(uid)
            self._deleted_uids.add(uid)
            known = self._objects.get(key)
            if known is not None and uid_of(known) == uid:
                self._remove_labels(key, known)
                del self._objects[key]

    def _put(self, key: Key, obj: Obj) -> None:
        known = self._objects.get(key)
        if known is not None:
            self._remove_labels(key, known)
        self._objects[key] = obj
        for label in _INDEXED:
            if label in labels_of(obj):
                self._by_label.setdefault((label, labels_of(obj)[label]), set()).add(key)

    def _remove_labels(self, key: Key, obj: Obj) -> None:
        for label in _INDEXED:
            label_key = (label, labels_of(obj).get(label, ""))
            keys = self._by_label.get(label_key)
            if keys is not None:
                keys.discard(key)
                if not keys:
                    del self._by_label[label_key]


def _version(obj: Obj) -> int:
    """Return the resource version, which increases with every write and can be compared as a number."""
    return parse_count(str(obj["metadata"].get("resourceVersion") or "")) or 0
