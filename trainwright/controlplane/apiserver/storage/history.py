"""Recent changes, from which watches resume and lists at earlier revisions are reconstructed."""

from __future__ import annotations

from trainwright.api.errors import Expired
from trainwright.controlplane.apiserver.storage.collection import Records
from trainwright.controlplane.apiserver.storage.events import Event, Events
from trainwright.controlplane.apiserver.storage.ring_buffer import RingBuffer

HISTORY_SIZE = 2000
"""Recent events kept for resuming watches; with 4 KB objects at most about 50 MB."""
HISTORY_BYTES = 16 * 1024 * 1024
"""Maximum JSON bytes of the recent events; parsed objects take several times as much."""


class History:
    """The latest changes, bounded in number and bytes. Not thread-safe: the store calls it under its lock."""

    def __init__(self, size: int, floor: int):
        self._events: RingBuffer[Event] = RingBuffer(size, HISTORY_BYTES)
        self._floor = floor

    def append(self, event: Event) -> None:
        size, previous = event.record.size, event.previous
        if previous is not None and previous.revision <= self._floor:  # no event in the history counts it
            size += previous.size
        for forgotten in self._events.append(event, size):
            self._floor = forgotten.revision

    def since(self, revision: int, current: int) -> Events:
        """Every change after `revision` up to `current`, oldest first. Raises Expired if some are no longer kept."""
        if revision < self._floor:
            raise Expired(f"too old resource version: {revision} ({self._floor})")
        if revision >= current:
            return []
        # Newest first: a resuming watch is rarely far behind.
        later: Events = []
        for event in reversed(self._events):
            if event.revision <= revision:
                break
            later.append(event)
        later.reverse()
        return later

    @staticmethod
    def revert(records: Records, later: Events, namespace: str | None) -> Records:
        """The records with these events reverted; `later` holds events of one resource, oldest first."""
        if not later:
            return records
        objects = {record.key: record for record in records}
        for event in reversed(later):
            if namespace not in (None, event.key[0]):
                continue
            if event.previous is None:
                objects.pop(event.key, None)
            else:
                objects[event.key] = event.previous
        return [objects[key] for key in sorted(objects)]
