"""The controllers' cluster: one watch per kind for all controllers, reads from memory, writes to the API.

A write is stored in memory before it returns and is never replaced by an older version, so controllers read their own writes.
Writes of others arrive through the watch.
"""

from __future__ import annotations

import threading
import time
from typing import Any, Unpack

from trainwright.api.errors import NotFound, ServiceUnavailable
from trainwright.api.kinds import Kind, kind_of
from trainwright.api.objects import Obj, copy_of
from trainwright.api.selectors.selection import label_selector as parsed_selector
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
from trainwright.controlplane.controllers.indexer import Indexer

SYNC_SECONDS = 30.0
_POLL_SECONDS = 0.5


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
            return None
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


def _sync_error(kind: Kind, watch: Reflector) -> str:
    return kind.resource + (f": {watch.failure[1].message}" if watch.failure else "")


def _trim(obj: Obj) -> Obj:
    """Keep only the fields needed after deletion, identity and owners, to bound memory."""
    fields = ("name", "namespace", "uid", "resourceVersion", "labels", "ownerReferences", "deletionTimestamp")
    metadata = {key: value for key, value in obj["metadata"].items() if key in fields}
    return {"apiVersion": obj.get("apiVersion"), "kind": obj.get("kind"), "metadata": metadata}
