"""Accepted writes that are not yet on disk: they are written in batches, and become visible only afterwards."""

from __future__ import annotations

from collections import deque

from trainwright.controlplane.apiserver.storage.collection import Records
from trainwright.controlplane.apiserver.storage.events import Event
from trainwright.controlplane.apiserver.storage.records import Key
from trainwright.controlplane.apiserver.wire.api_errors import StorageFailed

_MAX_FAILURES = 100
"""Failed batches that are kept for the threads waiting for them."""


class PendingWrites:
    """Not thread-safe: the store calls it under its lock."""

    def __init__(self) -> None:
        self.latest: dict[tuple[str, Key], Event] = {}
        """The latest accepted change of each object with pending writes."""
        self._batch: list[Event] = []
        self._failures: deque[tuple[int, int, StorageFailed]] = deque(maxlen=_MAX_FAILURES)

    def add(self, event: Event) -> None:
        self._batch.append(event)
        self.latest[event.resource, event.key] = event

    def take_batch(self) -> list[Event]:
        batch, self._batch = self._batch, []
        return batch

    def published(self, event: Event) -> None:
        """Remove a change that is now visible; a later change of the same object stays pending."""
        place = (event.resource, event.key)
        if self.latest.get(place) is event:
            del self.latest[place]

    def roll_back(self, first: int, last: int, error: StorageFailed) -> None:
        """Discard the revisions from `first` to `last`: later changes depend on the failed batch."""
        self._batch.clear()
        self.latest.clear()
        self._failures.append((first, last, error))

    def check(self, revision: int) -> None:
        """Raises StorageFailed if the batch with this revision could not be written."""
        for first, last, error in list(self._failures):
            if first <= revision <= last:
                raise StorageFailed(error.message, code=error.code) from error

    def applied_to(self, found: Records, resource: str, namespace: str | None) -> Records:
        """The list with all pending writes applied."""
        objects = {record.key: record for record in found}
        for event in self.latest.values():
            if event.resource != resource or namespace not in (None, event.key[0]):
                continue
            if event.current is None:
                objects.pop(event.key, None)
            else:
                objects[event.key] = event.current
        return [objects[key] for key in sorted(objects)]
