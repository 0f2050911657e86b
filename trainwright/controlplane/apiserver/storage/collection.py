"""The objects of one resource in memory, sorted by namespace and name, and indexed by frequently selected labels."""

from __future__ import annotations

from bisect import bisect_left, insort

import orjson

from trainwright.api import names
from trainwright.api.objects import Obj, labels_of
from trainwright.controlplane.apiserver.storage.records import Key, Labels, Record

Records = list[Record]
INDEXED = (names.JOB_NAME_LABEL, names.JOBSET_NAME_LABEL)
"""Indexed labels, which select the pods of a Job and the Jobs of a JobSet without a scan of the collection."""

_AS_BYTES = tuple(label.encode() for label in INDEXED)


class Collection:
    """Not thread-safe: the store calls it under its lock."""

    def __init__(self) -> None:
        self._objects: dict[str, dict[str, Record]] = {}
        self._ordered: dict[str, Records] = {}
        self._labelled: dict[tuple[str, str], dict[Key, Record]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._objects.values()))

    def get(self, key: Key) -> Record | None:
        found = self._objects.get(key[0])
        return found.get(key[1]) if found else None

    def put(self, record: Record) -> None:
        namespace, name = record.key
        objects, ordered = self._objects.setdefault(namespace, {}), self._ordered.setdefault(namespace, [])
        before = objects.get(name)
        objects[name] = record
        if before is not None:
            self._unlabel(before)
            ordered[bisect_left(ordered, record.key, key=_by_key)] = record
        elif not ordered or ordered[-1].key < record.key:
            ordered.append(record)
        else:
            insort(ordered, record, key=_by_key)
        for label in record.labels:
            self._labelled.setdefault(label, {})[record.key] = record

    def remove(self, key: Key) -> None:
        namespace, name = key
        record, ordered = self._objects[namespace].pop(name), self._ordered[namespace]
        del ordered[bisect_left(ordered, key, key=_by_key)]
        self._unlabel(record)
        if not ordered:
            del self._objects[namespace], self._ordered[namespace]

    def all(self, namespace: str | None = None) -> Records:
        """All objects (of a namespace), sorted by namespace and name, in a new list."""
        if namespace is not None:
            return list(self._ordered.get(namespace, ()))
        return [record for name in sorted(self._ordered) for record in self._ordered[name]]

    def with_label(self, label: str, value: str, namespace: str | None) -> Records:
        """Objects with this value of an indexed label, in the same order."""
        found = self._labelled.get((label, value), {})
        return sorted((record for record in found.values() if namespace in (None, record.key[0])), key=_by_key)

    def _unlabel(self, record: Record) -> None:
        for label in record.labels:
            others = self._labelled.get(label)
            if others is not None:
                others.pop(record.key, None)
                if not others:
                    del self._labelled[label]


def _by_key(record: Record) -> Key:
    return record.key


def labels_in(data: bytes) -> Labels:
    """The indexed labels of a serialized object, which is parsed only if it contains such a label."""
    return indexed_labels(orjson.loads(data)) if any(label in data for label in _AS_BYTES) else ()


def indexed_labels(obj: Obj) -> Labels:
    """The labels of an object that the collection indexes."""
    labels = labels_of(obj)
    return tuple((label, labels[label]) for label in INDEXED if label in labels) if labels else ()
