"""The current objects in memory: one collection per resource, sorted by namespace and name, and indexed by frequently selected labels.

Ten thousand finished jobs and their dependents may never be read again. Parsed they would take gigabytes, so records that were not
written recently are compressed, and decompressed on demand.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

import orjson
import zstandard

from trainwright.api import names
from trainwright.api.objects import Obj, labels_of
from trainwright.controlplane.apiserver.storage.journal import Journal

RECENT = 2000
"""Number of most recently written records that stay parsed."""
RECENT_BYTES = 16 * 1024 * 1024
"""Maximum JSON bytes of those records."""
SMALL_COLLECTION = 1000
"""Collections up to this size always stay parsed: every write reads runtimes and namespaces."""
LARGE_RECORD = 16 * 1024
"""JSON bytes from which a record is compressed in a small collection, too: parsed, it may take ten times as much."""
INDEXED = (names.JOB_NAME_LABEL, names.JOBSET_NAME_LABEL)
"""Indexed labels, which select the pods of a Job and the Jobs of a JobSet without a scan of the collection."""
_INDEXED_AS_BYTES = tuple(label.encode() for label in INDEXED)
Key = tuple[str, str]
"""Namespace (empty for cluster-scoped kinds) and name."""
Labels = tuple[tuple[str, str], ...]
_PACKED_FROM = 512
"""Minimum bytes of compressed JSON; below, compression does not pay."""
_PACKER = zstandard.ZstdCompressor(level=1)
T = TypeVar("T")


class ObjectTable:
    """Not thread-safe: the store calls it under its lock, except `get` and `size`, which read one collection."""

    def __init__(self) -> None:
        self._collections: dict[str, Collection] = {}
        self._recent: RingBuffer[tuple[Collection, Record]] = RingBuffer(RECENT, RECENT_BYTES)

    def load(self, journal: Journal) -> None:
        sizes = journal.sizes()
        for resource, namespace, name, revision, data in journal.objects():
            record = Record(revision, (namespace, name), data, labels=labels_in(data))
            if sizes[resource] > SMALL_COLLECTION or len(data) > LARGE_RECORD:
                record.pack()
            self._collection(resource).put(record)

    def get(self, resource: str, key: Key) -> Record | None:
        collection = self._collections.get(resource)
        return collection.get(key) if collection is not None else None

    def all(self, resource: str, namespace: str | None) -> Records:
        return self._collection(resource).all(namespace)

    def with_label(self, resource: str, label: tuple[str, str], namespace: str | None) -> Records:
        return self._collection(resource).with_label(*label, namespace)

    def put(self, resource: str, record: Record) -> None:
        collection = self._collection(resource)
        collection.put(record)
        self._pack_old(collection, record)

    def remove(self, resource: str, key: Key) -> None:
        self._collection(resource).remove(key)

    def size(self, resource: str) -> int:
        collection = self._collections.get(resource)
        return len(collection) if collection is not None else 0

    def sizes(self) -> dict[str, int]:
        return {resource: len(objects) for resource, objects in self._collections.items() if len(objects)}

    def _collection(self, resource: str) -> Collection:
        found = self._collections.get(resource)
        if found is None:
            found = self._collections[resource] = Collection()
        return found

    def _pack_old(self, collection: Collection, record: Record) -> None:
        """Compress records that are no longer recent, unless they were replaced or their collection is small."""
        for its_collection, old in self._recent.append((collection, record), len(record.data)):
            is_large = len(its_collection) > SMALL_COLLECTION or old.size > LARGE_RECORD
            if is_large and its_collection.get(old.key) is old:
                old.pack()


class Record:
    """`object` is shared by all readers: never change it. `data` is its JSON, serialized once for journal, responses and watches.

    `labels` are its indexed labels.
    """

    __slots__ = ("_data", "_is_recent", "_object", "key", "labels", "revision")

    def __init__(self, revision: int, key: Key, data: bytes, obj: Obj | None = None, *, labels: Labels = ()):
        self.revision = revision
        self.key = key
        self.labels = labels
        self._data = data
        self._object = obj
        self._is_recent = True

    @property
    def size(self) -> int:
        """Bytes that the JSON takes in memory, compressed or not."""
        return len(self._data)

    @property
    def data(self) -> bytes:
        data = self._data  # read once: another thread may compress it concurrently
        return data if data[:1] == b"{" else zstandard.decompress(data)

    @property
    def object(self) -> Obj:
        known = self._object
        if known is None:
            known = orjson.loads(self.data)
            if self._is_recent:
                self._object = known
        return known

    def pack(self) -> None:
        """Compress the JSON and drop the parsed object. Not thread-safe, even for different records."""
        self._is_recent, data = False, self._data
        if data[:1] == b"{" and len(data) >= _PACKED_FROM:
            # Copied, because the compressor's result keeps its oversized buffer.
            self._data = bytes(memoryview(_PACKER.compress(data)))
        self._object = None


Records = list[Record]


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
    return indexed_labels(orjson.loads(data)) if any(label in data for label in _INDEXED_AS_BYTES) else ()


def indexed_labels(obj: Obj) -> Labels:
    """The labels of an object that the collection indexes."""
    labels = labels_of(obj)
    return tuple((label, labels[label]) for label in INDEXED if label in labels) if labels else ()


class RingBuffer(Generic[T]):
    """A queue that drops its oldest items; the newest always stays. Not thread-safe."""

    def __init__(self, most: int, most_bytes: int):
        self._most, self._most_bytes = most, most_bytes
        self._things: deque[tuple[T, int]] = deque()
        self.bytes = 0

    def append(self, thing: T, size: int) -> list[T]:
        """Add an item of `size` bytes. Returns the dropped items, oldest first."""
        self._things.append((thing, size))
        self.bytes += size
        gone = []
        while len(self._things) > self._most or (self.bytes > self._most_bytes and len(self._things) > 1):
            oldest, size = self._things.popleft()
            self.bytes -= size
            gone.append(oldest)
        return gone

    def __len__(self) -> int:
        return len(self._things)

    def __reversed__(self) -> Iterator[T]:
        return (thing for thing, _ in reversed(self._things))
