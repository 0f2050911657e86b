"""A cluster as controllers see it: one watch a kind for all of them, reads from memory, writes to the API.

A write is in memory before it returns, and nothing older takes its place: a controller never reads behind its own writes.
What others write arrives by the watch, a moment later, and wakes whom it concerns.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

from trainwright.api import names
from trainwright.api.errors import NotFound, ServiceUnavailable
from trainwright.api.kinds import Kind, kind_of
from trainwright.api.objects import Obj, copy_of, is_deleting, labels_of, name_of, namespace_of, uid_of
from trainwright.api.selectors import label_selector as parsed_selector
from trainwright.api.times import now
from trainwright.cluster.protocol import Cluster, Listing, PatchType, Propagation, WatchEvent
from trainwright.cluster.reflector import Handler, Reflector

SYNC_SECONDS = 30.0
_INDEXED = (names.JOB_NAME_LABEL, names.JOBSET_NAME_LABEL)
"""A list by one of these labels looks at the objects that have it alone: the pods of a Job, the Jobs of a JobSet."""
_REMEMBERED = 10_000
_LOOK_SECONDS = 0.5
Place = tuple[str, str]


class LocalCache:
    """A `Cluster`. Of the cached kinds objects are read from memory, of others from the API; `follow` watches either."""

    def __init__(self, cluster: Cluster, cached: tuple[Kind, ...], stop: threading.Event, namespace: str | None = None):
        """`namespace`: watch that one alone."""
        self._cluster, self._stop, self._namespace = cluster, stop, namespace
        self._kept = {kind: Kept() for kind in cached}
        self._handlers: dict[Kind, list[Handler]] = {kind: [] for kind in cached}
        self._reflectors: dict[Kind, Reflector] = {}

    def follow(self, kind: Kind, handler: Handler) -> None:
        """Tell the handler of every change of a kind. Before `start`."""
        self._handlers.setdefault(kind, []).append(handler)

    def start(self) -> list[threading.Thread]:
        """Begin to watch, in daemon threads that end after `stop` is set."""
        for kind in self._handlers:
            handler = self._seen(kind)
            self._reflectors[kind] = Reflector(
                self._cluster,
                kind,
                self._namespace if kind.namespaced else None,
                handler=handler,
                stop=self._stop,
                remember=_essentials,
            )
        return [reflector.start() for reflector in self._reflectors.values()]

    def unsynced(self) -> str:
        """What has not been listed yet, and why where an error is known; empty when everything has."""
        return "; ".join(_why(kind, watch) for kind, watch in self._reflectors.items() if not watch.synced.is_set())

    def get(self, kind: Kind, name: str, namespace: str | None = None) -> Obj:
        kept = self._synced(kind)
        if kept is None:
            return self._cluster.get(kind, name, namespace)
        found = kept.get((namespace or "", name))
        if found is None:
            raise NotFound(f'{kind.resource} "{name}" not found')
        return copy_of(found)

    def list(self, kind: Kind, namespace: str | None = None, *, label_selector: str = "", field_selector: str = "") -> Listing:
        kept = self._synced(kind)
        if kept is None or field_selector:
            return self._cluster.list(kind, namespace, label_selector=label_selector, field_selector=field_selector)
        matches = parsed_selector(label_selector)
        found = [copy_of(obj) for obj in kept.among(namespace, label_selector) if matches(obj)]
        return Listing(found, "")

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
        return self._noted(self._cluster.create(obj))

    def update(self, obj: Obj) -> Obj:
        return self._noted(self._cluster.update(obj))

    def update_status(self, obj: Obj) -> Obj:
        return self._noted(self._cluster.update_status(obj))

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
        return self._noted(
            self._cluster.patch(
                kind,
                name,
                patch,
                namespace,
                patch_type=patch_type,
                subresource=subresource,
                field_manager=field_manager,
                force=force,
            )
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
        kept = self._kept.get(kind)
        before = kept.get((namespace or "", name)) if kept is not None else None
        self._cluster.delete(
            kind,
            name,
            namespace,
            propagation=propagation,
            uid=uid,
            resource_version=resource_version,
            grace_period_seconds=grace_period_seconds,
        )
        if kept is not None and before is not None:
            kept.doom(before)

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

    def _synced(self, kind: Kind) -> Kept | None:
        """What is kept of a cached kind, once its first list is in. Raises ServiceUnavailable while it is not."""
        kept = self._kept.get(kind)
        if kept is None:
            return None
        watch, deadline = self._reflectors[kind], time.monotonic() + SYNC_SECONDS
        while not watch.synced.wait(_LOOK_SECONDS):
            if self._stop.is_set() or time.monotonic() > deadline:
                raise ServiceUnavailable(f"not listed {_why(kind, watch)}")
        return kept

    def _seen(self, kind: Kind) -> Handler:
        kept, handlers = self._kept.get(kind), self._handlers[kind]

        def handle(event: str, obj: Obj) -> None:
            if kept is not None and event == "DELETED":
                kept.remove(obj)
            elif kept is not None:
                kept.note(obj)
            for handler in handlers:
                handler(event, obj)

        return handle

    def _noted(self, obj: Obj) -> Obj:
        kind = kind_of(obj)
        kept = self._kept.get(kind) if kind is not None else None
        if kind is not None and kept is not None:
            kept.note(copy_of(obj))
        return obj


def _why(kind: Kind, watch: Reflector) -> str:
    return kind.resource + (f": {watch.failure[1].message}" if watch.failure else "")


def _essentials(obj: Obj) -> Obj:
    """What has to be known of an object when it is gone: who it was, and whose. All of all objects would fill the memory."""
    kept = ("name", "namespace", "uid", "resourceVersion", "labels", "ownerReferences", "deletionTimestamp")
    metadata = {key: value for key, value in obj["metadata"].items() if key in kept}
    return {"apiVersion": obj.get("apiVersion"), "kind": obj.get("kind"), "metadata": metadata}


class Kept:
    """The objects of one kind, by place and by label. What is kept is never changed, only replaced."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._objects: dict[Place, Obj] = {}
        self._labelled: dict[tuple[str, str], set[Place]] = {}
        self._gone: deque[str] = deque(maxlen=_REMEMBERED)
        self._gone_uids: set[str] = set()

    def get(self, place: Place) -> Obj | None:
        with self._lock:
            return self._objects.get(place)

    def among(self, namespace: str | None, selector: str) -> list[Obj]:
        """All that may match: those of the selector's first label where that is indexed."""
        label, _, value = selector.partition(",")[0].partition("=")
        with self._lock:
            if label in _INDEXED and value and "=" not in value:
                found = [self._objects[place] for place in sorted(self._labelled.get((label, value), ()))]
            else:
                found = list(self._objects.values())
        return [obj for obj in found if namespace is None or namespace_of(obj) == namespace]

    def note(self, obj: Obj) -> None:
        """Keep the object, unless a newer state of it is known."""
        place = (namespace_of(obj), name_of(obj))
        with self._lock:
            known = self._objects.get(place)
            if uid_of(obj) in self._gone_uids or (known is not None and _version(known) > _version(obj)):
                return
            self._put(place, obj)

    def doom(self, before: Obj) -> None:
        """We have asked for the deletion of this object: until the watch tells more, it is on its way out."""
        place = (namespace_of(before), name_of(before))
        with self._lock:
            known = self._objects.get(place)
            if known is not None and uid_of(known) == uid_of(before) and not is_deleting(known):
                self._put(place, {**known, "metadata": {**known["metadata"], "deletionTimestamp": now()}})

    def remove(self, obj: Obj) -> None:
        """The object is gone. Its UID is remembered for a while: the answer to a write may come after this news."""
        place, uid = (namespace_of(obj), name_of(obj)), uid_of(obj)
        with self._lock:
            if len(self._gone) == _REMEMBERED:
                self._gone_uids.discard(self._gone[0])
            self._gone.append(uid)
            self._gone_uids.add(uid)
            known = self._objects.get(place)
            if known is not None and uid_of(known) == uid:
                self._unlabel(place, known)
                del self._objects[place]

    def _put(self, place: Place, obj: Obj) -> None:
        known = self._objects.get(place)
        if known is not None:
            self._unlabel(place, known)
        self._objects[place] = obj
        for label in _INDEXED:
            if label in labels_of(obj):
                self._labelled.setdefault((label, labels_of(obj)[label]), set()).add(place)

    def _unlabel(self, place: Place, obj: Obj) -> None:
        for label in _INDEXED:
            key = (label, labels_of(obj).get(label, ""))
            places = self._labelled.get(key)
            if places is not None:
                places.discard(place)
                if not places:
                    del self._labelled[key]


def _version(obj: Obj) -> int:
    """Versions grow from write to write; the API promises that they compare as numbers."""
    text = str(obj["metadata"].get("resourceVersion") or "0")
    return int(text) if text.isdigit() else 0
