"""The current objects in memory, one collection per resource; records that were not written recently are compressed."""

from __future__ import annotations

from trainwright.controlplane.apiserver.storage.collection import Collection, Records, labels_in
from trainwright.controlplane.apiserver.storage.journal import Journal
from trainwright.controlplane.apiserver.storage.records import Key, Record
from trainwright.controlplane.apiserver.storage.ring_buffer import RingBuffer

RECENT = 2000
"""Number of most recently written records that stay parsed."""
RECENT_BYTES = 16 * 1024 * 1024
"""Maximum JSON bytes of those records."""
SMALL_COLLECTION = 1000
"""Collections up to this size always stay parsed: every write reads runtimes and namespaces."""
LARGE_RECORD = 16 * 1024
"""JSON bytes from which a record is compressed in a small collection, too: parsed, it may take ten times as much."""


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
