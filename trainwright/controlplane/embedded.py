"""The embedded API server as a `Cluster` without HTTP, for the controllers in the same process and for fast tests.

Same verbs and errors as over HTTP; returned objects are copies.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Unpack, cast

import orjson

from trainwright.api.errors import BadRequest, ServiceUnavailable
from trainwright.api.kinds import POD, Kind, kind_of
from trainwright.api.objects import Obj, name_of, namespace_of
from trainwright.api.times import parse_time
from trainwright.cluster.protocol import CreateOptions, DeleteOptions, Listing, LogOptions, PatchOptions, WatchEvent, WatchOptions
from trainwright.cluster.protocol import ListOptions as Selectors
from trainwright.controlplane.apiserver.resources.registry import strategy_of
from trainwright.controlplane.apiserver.storage.events import Subscription
from trainwright.controlplane.apiserver.storage.listing import Selection
from trainwright.controlplane.apiserver.storage.object_table import Record
from trainwright.controlplane.apiserver.streaming import container_logs
from trainwright.controlplane.apiserver.streaming.container_logs import Logs, NoLogs, open_log
from trainwright.controlplane.apiserver.streaming.websocket import OpenStreams
from trainwright.controlplane.apiserver.verbs import deletion
from trainwright.controlplane.apiserver.verbs.resource_server import ResourceServer
from trainwright.controlplane.apiserver.wire import media
from trainwright.controlplane.apiserver.wire.requests import ListOptions, WriteOptions

_MEDIA_TYPES = {"merge": media.MERGE, "json": media.JSON_PATCH, "apply": media.APPLY}
_STATUS = WriteOptions(status=True)
_OBJECT = WriteOptions()


class EmbeddedCluster:
    """A `Cluster` on a `ResourceServer` in this process. Thread-safe.

    With `shared`, lists, watches and writes return the store's own objects, which must not be changed; `get` always returns a
    copy. Meant for controllers, which read many objects repeatedly.
    """

    def __init__(self, server: ResourceServer, logs: Logs | None = None, *, shared: bool = False):
        self._server, self._shared = server, shared
        self._logs = logs or NoLogs()
        self._watches = OpenStreams()

    def get(self, kind: Kind, name: str, namespace: str | None = None) -> Obj:
        """Return an object. Raises NotFound."""
        return cast(Obj, orjson.loads(self._server.get(kind, _namespace_key(kind, namespace), name).data))

    def list(self, kind: Kind, namespace: str | None = None, **options: Unpack[Selectors]) -> Listing:
        """Return all matching objects."""
        page = self._server.list(kind, namespace if kind.namespaced else None, ListOptions(**options))
        return Listing([self._given(record) for record in page.records], str(page.revision))

    def watch(self, kind: Kind, namespace: str | None = None, **options: Unpack[WatchOptions]) -> Iterator[WatchEvent]:
        """Watch changes after `resource_version`; ends with a bookmark at the timeout.

        Without a version (or with "0") it starts with the current objects. It ends early if the reader is too slow, and on `close`.
        Raises Expired if the version is too old: list again.
        """
        if self._watches.closed:
            raise ServiceUnavailable("the embedded cluster is shutting down")
        selection = Selection.parse(strategy_of(kind), options.get("label_selector", ""), options.get("field_selector", ""))
        since = ListOptions(resource_version=options["resource_version"]).start_revision()
        subscription = self._server.subscribe(kind, namespace if kind.namespaced else None, since)
        events = self._events(kind, subscription, selection, options.get("timeout_seconds", 300))
        next(events)  # start the generator, so that it unsubscribes even if it is never read
        return events

    def create(self, obj: Obj, **options: Unpack[CreateOptions]) -> Obj:
        """Create an object. Raises AlreadyExists, Invalid, Forbidden; NotFound if the namespace does not exist."""
        kind, on_warning = _kind(obj), options.get("on_warning")
        how = WriteOptions(options.get("dry_run", False), options.get("field_validation", "Warn")) if options else _OBJECT
        created = self._server.create(kind, _namespace_key(kind, namespace_of(obj)), obj, how)
        if on_warning is not None:
            for warning in created.warnings:
                on_warning(warning)
        return self._given(created.record)

    def update(self, obj: Obj) -> Obj:
        """Replace an object. Raises Conflict if its resource version is outdated."""
        return self._replace(obj, _OBJECT)

    def update_status(self, obj: Obj) -> Obj:
        """Replace an object's status. Raises Conflict if its resource version is outdated."""
        return self._replace(obj, _STATUS)

    def patch(self, kind: Kind, name: str, patch: Any, namespace: str | None = None, **options: Unpack[PatchOptions]) -> Obj:
        """Patch an object or its status."""
        subresource = options.get("subresource")
        if subresource not in (None, "status"):
            raise BadRequest(f"subresource: {subresource!r} cannot be patched; only status is supported")
        media_type = _MEDIA_TYPES[options.get("patch_type", "merge")]
        changed = self._server.patch(
            kind, _namespace_key(kind, namespace), name, patch, media_type, _STATUS if subresource else _OBJECT
        )
        return self._given(changed.record)

    def delete(self, kind: Kind, name: str, namespace: str | None = None, **options: Unpack[DeleteOptions]) -> None:
        """Delete an object. `uid` and `resource_version` are preconditions.

        Raises NotFound, Conflict for a failed precondition.
        """
        how = deletion.DeleteOptions(
            options.get("propagation", "Background"),
            options.get("grace_period_seconds"),
            options.get("uid"),
            options.get("resource_version"),
        )
        self._server.delete(kind, _namespace_key(kind, namespace), name, how)

    def bind(self, name: str, namespace: str, node: str) -> None:
        """Assign a pod to a node and set its PodScheduled condition. Raises Conflict if it is already assigned, NotFound."""
        self._server.bind(namespace, name, node)

    def logs(self, name: str, namespace: str, **options: Unpack[LogOptions]) -> Iterator[bytes]:
        """A container's log in chunks; empty while the pod has no node. Raises NotFound, or BadRequest if it has not started."""
        pod = self.get(POD, name, namespace)
        since_time = options.get("since_time")
        how = container_logs.LogOptions(
            options.get("container"),
            options.get("follow", False),
            options.get("tail_lines"),
            since_time=parse_time(since_time) if since_time else None,
            limit_bytes=options.get("limit_bytes"),
            timestamps=options.get("timestamps", False),
            previous=options.get("previous", False),
        )
        # Drop the heartbeats, which only HTTP needs.
        return (chunk for chunk in open_log(self._logs, pod, how) or () if chunk)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Flush the writes of this thread together on exit. Raises StorageFailed; all of them are then rolled back."""
        store = self._server.store
        with store.deferred() as deferred:
            try:
                yield
            finally:
                store.flush(deferred.last)

    def close(self) -> None:
        """End all open and future watches. The server stays open."""
        self._watches.close()

    def _events(self, kind: Kind, subscription: Subscription, selection: Selection, timeout_seconds: int) -> Iterator[WatchEvent]:
        self._watches.add(subscription.close)
        deadline = time.monotonic() + timeout_seconds
        try:
            yield WatchEvent("BOOKMARK", {})
            for record in map(selection.select, subscription.initial):
                if record is not None:
                    yield WatchEvent("ADDED", self._given(record))
            while not subscription.ended:
                for event in subscription.take(max(deadline - time.monotonic(), 0.0)):
                    seen = selection.convert_event(event)
                    if seen:
                        yield WatchEvent(seen[0], self._given(seen[1]))
                if time.monotonic() >= deadline and not subscription.overflowed:
                    metadata = {"resourceVersion": str(self._server.store.progress(subscription))}
                    yield WatchEvent("BOOKMARK", {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata})
                    return
        finally:
            self._watches.discard(subscription.close)
            self._server.store.unsubscribe(subscription)

    def _replace(self, obj: Obj, options: WriteOptions) -> Obj:
        kind = _kind(obj)
        return self._given(self._server.update(kind, _namespace_key(kind, namespace_of(obj)), name_of(obj), obj, options).record)

    def _given(self, record: Record) -> Obj:
        """The object to return: a copy unless `shared`."""
        return record.object if self._shared else cast(Obj, orjson.loads(record.data))


def _kind(obj: Obj) -> Kind:
    kind = kind_of(obj)
    if kind is None:
        raise BadRequest(
            f"the embedded cluster does not serve {obj.get('kind') or 'objects without a kind'} of {obj.get('apiVersion')}"
        )
    return kind


def _namespace_key(kind: Kind, namespace: str | None) -> str:
    """The namespace for the server: empty for cluster-scoped kinds."""
    return (namespace or "") if kind.namespaced else ""
