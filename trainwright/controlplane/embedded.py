"""The embedded API server as a `Cluster`, without HTTP: for the controllers beside it, and for fast tests.

Same verbs, same errors; every object that comes out is the caller's own.
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
from trainwright.cluster.options import DeleteOptions, LogOptions, PatchOptions, WatchOptions
from trainwright.cluster.options import ListOptions as Selectors
from trainwright.cluster.protocol import Listing, WatchEvent
from trainwright.controlplane.apiserver.resources.registry import strategy_of
from trainwright.controlplane.apiserver.storage.events import Subscription
from trainwright.controlplane.apiserver.storage.records import Record
from trainwright.controlplane.apiserver.storage.selection import Selection
from trainwright.controlplane.apiserver.streaming import container_logs
from trainwright.controlplane.apiserver.streaming.container_logs import Logs, NoLogs, open_log
from trainwright.controlplane.apiserver.streaming.open_streams import Streams
from trainwright.controlplane.apiserver.verbs import deletion
from trainwright.controlplane.apiserver.verbs.resource_server import ResourceServer
from trainwright.controlplane.apiserver.wire import patch_types
from trainwright.controlplane.apiserver.wire.list_options import ListOptions
from trainwright.controlplane.apiserver.wire.write_options import WriteOptions

_MEDIA_TYPES = {"merge": patch_types.MERGE, "json": patch_types.JSON_PATCH, "apply": patch_types.APPLY}
_STATUS = WriteOptions(status=True)
_OBJECT = WriteOptions()


class EmbeddedCluster:
    """A `Cluster` over a `ResourceServer` in this process. Safe to use from many threads.

    `shared`: lists, watches and writes give the store's own objects, which nobody may change; a `get` always gives a copy. For
    controllers, which look at many objects again and again.
    """

    def __init__(self, server: ResourceServer, logs: Logs | None = None, *, shared: bool = False):
        self._server, self._shared = server, shared
        self._logs = logs or NoLogs()
        self._watches = Streams()

    def get(self, kind: Kind, name: str, namespace: str | None = None) -> Obj:
        """One object. Raises NotFound."""
        return cast(Obj, orjson.loads(self._server.get(kind, _space(kind, namespace), name).data))

    def list(self, kind: Kind, namespace: str | None = None, **options: Unpack[Selectors]) -> Listing:
        """All objects that match."""
        page = self._server.list(kind, namespace if kind.namespaced else None, ListOptions(**options))
        return Listing([self._given(record) for record in page.records], str(page.revision))

    def watch(self, kind: Kind, namespace: str | None = None, **options: Unpack[WatchOptions]) -> Iterator[WatchEvent]:
        """Changes after `resource_version`, ending with a bookmark when the time is up.

        Without a version (or with "0") it begins with what there is. It ends early when the reader is too slow, or at `close`.
        Raises Expired when that version is no longer known: list again.
        """
        if self._watches.closed:
            raise ServiceUnavailable("the embedded cluster is shutting down")
        selection = Selection.parse(strategy_of(kind), options.get("label_selector", ""), options.get("field_selector", ""))
        since = ListOptions(resource_version=options["resource_version"]).since()
        subscription = self._server.subscribe(kind, namespace if kind.namespaced else None, since)
        events = self._events(kind, subscription, selection, options.get("timeout_seconds", 300))
        next(events)  # started, so that it unsubscribes even if nobody ever reads it
        return events

    def create(self, obj: Obj) -> Obj:
        """Raises AlreadyExists, Invalid, Forbidden; NotFound when the namespace does not exist."""
        kind = _kind(obj)
        return self._given(self._server.create(kind, _space(kind, namespace_of(obj)), obj).record)

    def update(self, obj: Obj) -> Obj:
        """Replace an object. Raises Conflict when its resource version is stale."""
        return self._replace(obj, _OBJECT)

    def update_status(self, obj: Obj) -> Obj:
        """Replace an object's status. Raises Conflict when stale."""
        return self._replace(obj, _STATUS)

    def patch(self, kind: Kind, name: str, patch: Any, namespace: str | None = None, **options: Unpack[PatchOptions]) -> Obj:
        """Change an object, or its status."""
        subresource = options.get("subresource")
        if subresource not in (None, "status"):
            raise BadRequest(f"subresource: {subresource!r} cannot be patched, only status can")
        media_type = _MEDIA_TYPES[options.get("patch_type", "merge")]
        changed = self._server.patch(kind, _space(kind, namespace), name, patch, media_type, _STATUS if subresource else _OBJECT)
        return self._given(changed.record)

    def delete(self, kind: Kind, name: str, namespace: str | None = None, **options: Unpack[DeleteOptions]) -> None:
        """Delete an object; with `uid` only that very one, with `resource_version` only as it was (Conflict otherwise).

        Raises NotFound.
        """
        how = deletion.DeleteOptions(
            options.get("propagation", "Background"),
            options.get("grace_period_seconds"),
            options.get("uid"),
            options.get("resource_version"),
        )
        self._server.delete(kind, _space(kind, namespace), name, how)

    def bind(self, name: str, namespace: str, node: str) -> None:
        """Give a pod its node, once, and say that it is scheduled: one write. Raises Conflict when it has one, NotFound."""
        self._server.bind(namespace, name, node)

    def logs(self, name: str, namespace: str, **options: Unpack[LogOptions]) -> Iterator[bytes]:
        """A container's log in chunks; none while the pod has no node. Raises NotFound, or BadRequest when it has not started."""
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
        # Without the heartbeats, which are for readers that may disappear unnoticed.
        return (chunk for chunk in open_log(self._logs, pod, how) or () if chunk)

    @contextmanager
    def together(self) -> Iterator[None]:
        """The writes of this thread go to disk together, at the end. Raises StorageFailed: then none of them has happened."""
        store = self._server.store
        with store.deferred() as deferred:
            try:
                yield
            finally:
                store.flush(deferred.last)

    def close(self) -> None:
        """End every watch, and every later one. The server stays open."""
        self._watches.close()

    def _events(self, kind: Kind, subscription: Subscription, selection: Selection, timeout_seconds: int) -> Iterator[WatchEvent]:
        self._watches.add(subscription.close)
        deadline = time.monotonic() + timeout_seconds
        try:
            yield WatchEvent("BOOKMARK", {})
            for record in map(selection.shown, subscription.initial):
                if record is not None:
                    yield WatchEvent("ADDED", self._given(record))
            while not subscription.ended:
                for event in subscription.take(max(deadline - time.monotonic(), 0.0)):
                    seen = selection.seen(event)
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
        return self._given(self._server.update(kind, _space(kind, namespace_of(obj)), name_of(obj), obj, options).record)

    def _given(self, record: Record) -> Obj:
        """An object as it leaves: the caller's own, unless this cluster shares."""
        return record.object if self._shared else cast(Obj, orjson.loads(record.data))


def _kind(obj: Obj) -> Kind:
    kind = kind_of(obj)
    if kind is None:
        raise BadRequest(
            f"the embedded cluster does not serve {obj.get('kind') or 'objects without a kind'} of {obj.get('apiVersion')}"
        )
    return kind


def _space(kind: Kind, namespace: str | None) -> str:
    """The namespace as the server wants it: empty for a cluster-scoped kind."""
    return (namespace or "") if kind.namespaced else ""
