"""An in-memory index of objects of one kind, like client-go's Indexer."""

from __future__ import annotations

import threading
from collections import deque

from trainwright.api import names
from trainwright.api.integers import parse_count
from trainwright.api.objects import Obj, is_deleting, labels_of, name_of, namespace_of, uid_of
from trainwright.api.times import now

_INDEXED = (names.JOB_NAME_LABEL, names.JOBSET_NAME_LABEL)
"""Labels with an index, for lists of the pods of a Job and of the Jobs of a JobSet."""
_MAX_DELETED_UIDS = 10_000
Key = tuple[str, str]


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
                return
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
