"""The embedded API server as a `Cluster`, without HTTP: for the controllers beside it, and for fast tests.

Same verbs, same errors; every object that comes out is the caller's own.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import orjson

from trainwright.api.errors import BadRequest, ServiceUnavailable
from trainwright.api.kinds import POD, Kind, kind_of
from trainwright.api.objects import Obj, name_of, namespace_of
from trainwright.cluster.protocol import Listing, PatchType, Propagation, WatchEvent
from trainwright.controlplane.apiserver import patches
from trainwright.controlplane.apiserver.deletion import DeleteOptions
from trainwright.controlplane.apiserver.events import Subscription
from trainwright.controlplane.apiserver.list_options import ListOptions
from trainwright.controlplane.apiserver.logs import LogOptions, Logs, NoLogs, open_log
from trainwright.controlplane.apiserver.open_streams import Streams
from trainwright.controlplane.apiserver.records import Record
from trainwright.controlplane.apiserver.registry import strategy_of
from trainwright.controlplane.apiserver.rest import ResourceServer
from trainwright.controlplane.apiserver.selection import Selection
from trainwright.controlplane.apiserver.write_options import WriteOptions

_MEDIA_TYPES = {"merge": patches.MERGE, "json": patches.JSON_PATCH, "apply": patches.APPLY}
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

    def list(self, kind: Kind, namespace: str | None = None, *, label_selector: str = "", field_selector: str = "") -> Listing:
        """All objects that match."""
        options = ListOptions(label_selector=label_selector, field_selector=field_selector)
        page = self._server.list(kind, namespace if kind.namespaced else None, options)
        return Listing([self._given(record) for record in page.records], str(page.revision))

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
        """Changes after `resource_version`, ending with a bookmark when the time is up.

        Without a version (or with "0") it begins with what there is. It ends early when the reader is too slow, or at `close`.
        Raises Expired when that version is no longer known: list again.
        """
        if self._watches.closed:
            raise ServiceUnavailable("the embedded cluster is shutting down")
        selection = Selection.parse(strategy_of(kind), label_selector, field_selector)
        since = ListOptions(resource_version=resource_version).since()
        subscription = self._server.subscribe(kind, namespace if kind.namespaced else None, since)
        events = self._events(kind, subscription, selection, timeout_seconds)
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
        """Change an object, or its status."""
        if subresource not in (None, "status"):
            raise BadRequest(f"subresource: {subresource!r} cannot be patched, only status can")
        options = _STATUS if subresource else _OBJECT
        changed = self._server.patch(kind, _space(kind, namespace), name, patch, _MEDIA_TYPES[patch_type], options)
        return self._given(changed.record)

    def delete(
        self,
        kind: Kind,
        name: str,
        namespace: str | None = None,
        *,
        propagation: Propagation = "Background",
        uid: str | None = None,
        grace_period_seconds: int | None = None,
    ) -> None:
        """Delete an object; with `uid` only that very one (Conflict otherwise). Raises NotFound."""
        self._server.delete(kind, _space(kind, namespace), name, DeleteOptions(propagation, grace_period_seconds, uid))

    def bind(self, name: str, namespace: str, node: str) -> None:
        """Give a pod its node, once, and say that it is scheduled: one write. Raises Conflict when it has one, NotFound."""
        self._server.bind(namespace, name, node)

    def logs(
        self,
        name: str,
        namespace: str,
        *,
        container: str | None = None,
        follow: bool = False,
        tail_lines: int | None = None,
        limit_bytes: int | None = None,
    ) -> Iterator[bytes]:
        """A container's log in chunks; none while the pod has no node. Raises NotFound, or BadRequest when it has not started."""
        pod = self.get(POD, name, namespace)
        options = LogOptions(container, follow, tail_lines, limit_bytes=limit_bytes)
        # Without the heartbeats, which are there for readers that can go away without a word.
        return (chunk for chunk in open_log(self._logs, pod, options) or () if chunk)

    @contextmanager
    def together(self) -> Iterator[None]:
        """The writes of this thread go to disk together, at the end. Raises StorageFailed: then none of them has happened."""
        store = self._server.store
        with store.deferred() as deferred:
            try:
                yield
            finally:
                store.settle(deferred.last)

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
