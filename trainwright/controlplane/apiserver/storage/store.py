"""The objects of the cluster and their recent history: in memory, with a journal on disk.

All resources share one revision counter; an object's revision is its resourceVersion. A write is accepted under a lock and written
to disk in a batch; only then does it reach memory and watchers. No reader sees a state that a crash could undo. The store knows
nothing of Kubernetes except metadata.resourceVersion.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import get_ident

import orjson

from trainwright.api.objects import Obj
from trainwright.controlplane.apiserver.storage.events import HISTORY_SIZE, Event, Events, History, Subscription, Watchers
from trainwright.controlplane.apiserver.storage.journal import Change, Durability, Journal
from trainwright.controlplane.apiserver.storage.object_table import Key, ObjectTable, Record, Records, indexed_labels
from trainwright.controlplane.apiserver.wire.api_errors import StorageFailed
from trainwright.controlplane.apiserver.wire.bodies import check_stored_size

QUEUE_SIZE = 4096
"""Maximum queued events per watcher; a slower watcher must list again."""
_MAX_FAILURES = 100
"""Failed batches that are kept for the threads waiting for them."""
log = logging.getLogger(__name__)


class Store:
    """Opens or creates the store in the file `path` (`:memory:` for one without a file).

    Thread-safe. The caller ensures that only one process uses the file.
    """

    def __init__(
        self, path: Path | str, *, durability: Durability = "normal", ring_size: int = HISTORY_SIZE, queue_size: int = QUEUE_SIZE
    ):
        self._lock, self._writing = threading.RLock(), threading.Lock()
        self._holder, self._depth = 0, 0
        self._deferring: dict[int, Deferred] = {}
        self._closed = False
        self.durability = durability
        self._journal = Journal(path, durability)
        self._objects = ObjectTable()
        self._objects.load(self._journal)
        self._revision = self._accepted = self._flushed = self._journal.revision
        self._history = History(ring_size, self._revision)
        self._watchers = Watchers(queue_size)
        self._pending = PendingWrites()
        log.info("event=store_opened revision=%d objects=%d", self._revision, sum(self._objects.sizes().values()))

    @property
    def revision(self) -> int:
        """The latest revision on disk."""
        return self._revision

    @property
    def accepted_revision(self) -> int:
        """The latest accepted revision; `flush` writes it to disk."""
        return self._accepted

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the write lock, for example to read and write atomically.

        The holder also reads accepted writes that are not yet on disk. On exit the writes are flushed, unless the thread is
        inside `deferred`; raises StorageFailed.
        """
        self._lock.acquire()
        self._depth += 1
        self._holder = get_ident()
        try:
            yield
        finally:
            self._depth -= 1
            is_outermost, last = self._depth == 0, self._accepted
            flushes = is_outermost and get_ident() not in self._deferring
            if is_outermost:
                self._holder = 0
            self._lock.release()
            if flushes:
                self.flush(last)

    @contextmanager
    def deferred(self) -> Iterator[Deferred]:
        """Writes of this thread do not wait for the disk, and it reads all accepted writes.

        The caller must call `flush` before it reports success. Cannot be nested.
        """
        ident, deferred = get_ident(), Deferred()
        self._deferring[ident] = deferred
        try:
            yield deferred
        finally:
            del self._deferring[ident]

    def flush(self, revision: int) -> None:
        """Write all accepted changes; return once everything up to `revision` is on disk and visible.

        Raises StorageFailed if writing failed; the changes are then rolled back.
        """
        while self._flushed < revision:
            with self._writing:
                if self._flushed < revision:
                    self._write()
        self._pending.check(revision)

    def get(self, resource: str, namespace: str, name: str) -> Record | None:
        key = (namespace, name)
        if self._pending.latest and self._sees_pending():
            event = self._pending.latest.get((resource, key))
            if event is not None:
                return event.current
        return self._objects.get(resource, key)

    def list(self, resource: str, namespace: str | None = None, *, label: tuple[str, str] | None = None) -> tuple[Records, int]:
        """All objects of a resource, sorted by namespace and name, and the revision of the list.

        `label` selects by an indexed label (one of `collection.INDEXED`) and its value.
        """
        with self._lock:
            found = self._objects.with_label(resource, label, namespace) if label else self._objects.all(resource, namespace)
            if self._pending.latest and self._sees_pending():
                found = self._pending.applied_to(found, resource, namespace)
            return found, self._revision

    def list_at(self, resource: str, namespace: str | None, revision: int) -> Records:
        """The list at an earlier revision. Raises Expired if the history does not reach that far."""
        with self._lock:
            later = [event for event in self.events_since(revision) if event.resource == resource]
            return History.revert(self._objects.all(resource, namespace), later, namespace)

    def put(self, resource: str, namespace: str, name: str, obj: Obj, expected: int | None = None) -> Record:
        """Write an object if its revision is `expected` (0: it must not exist; None: unconditionally).

        Sets metadata.resourceVersion on a shallow copy: the caller must not change nested values of `obj` afterwards.
        Raises RevisionMismatch, StorageFailed.
        """
        with self.locked():
            previous = self._at(resource, (namespace, name), expected)
            record = self._next((namespace, name), obj)
            self._accept(Event("MODIFIED" if previous else "ADDED", resource, record.key, record, previous))
        return record

    def delete(self, resource: str, namespace: str, name: str, expected: int | None = None, last: Obj | None = None) -> Record:
        """Remove an object. `last` is the state in the DELETED event; defaults to the stored one.

        Raises RevisionMismatch (also if the object does not exist), StorageFailed.
        """
        with self.locked():
            previous = self._at(resource, (namespace, name), expected)
            if previous is None:
                raise RevisionMismatch(0)
            record = self._next(previous.key, previous.object if last is None else last)
            self._accept(Event("DELETED", resource, record.key, record, previous))
        return record

    def size(self, resource: str) -> int:
        """Number of objects of a resource."""
        return self._objects.size(resource)

    def sizes(self) -> dict[str, int]:
        """Number of objects of each resource."""
        with self._lock:
            return self._objects.sizes()

    def watchers(self) -> dict[str, int]:
        """Number of subscriptions of each resource."""
        with self._lock:
            return self._watchers.counts()

    def events_since(self, revision: int) -> Events:
        """Every change after `revision`, oldest first. Raises Expired if some are no longer kept."""
        with self._lock:
            return self._history.since(revision, self._revision)

    def subscribe(
        self, resource: str, namespace: str | None = None, since: int | None = None, *, wake: Callable[[], None] | None = None
    ) -> Subscription:
        """Subscribe to every change after `since`; by default to new changes, with the current objects in `initial`.

        `wake` is called under the store's lock and must not block. Raises Expired. End it with `unsubscribe`.
        """
        with self._lock:
            initial = self._objects.all(resource, namespace) if since is None else []
            missed = [] if since is None else self.events_since(since)
            start = self._revision if since is None else since
            subscription = Subscription(resource, namespace, initial, start, self._watchers.queue_size, wake)
            for event in missed:
                if subscription.matches(event):
                    subscription.push(event)
            if self._closed:
                subscription.close()
            else:
                self._watchers.add(subscription)
            return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """End a subscription; a no-op if it has already ended."""
        with self._lock:
            self._watchers.remove(subscription)
        subscription.close()

    def progress(self, subscription: Subscription) -> int:
        """The revision up to which the subscriber has received all events, for use in a bookmark."""
        with self._lock:
            return subscription.advance(self._revision)

    def close(self) -> None:
        """End all subscriptions and close the journal; accepted writes that were not flushed are lost."""
        with self._writing, self._lock:
            if self._closed:
                return  # closing twice does no harm
            self._closed = True
            subscriptions = self._watchers.remove_all()
            self._journal.close()
        for subscription in subscriptions:
            subscription.close()
        log.info("event=store_closed revision=%d", self._revision)

    def _sees_pending(self) -> bool:
        """Whether this thread reads pending writes."""
        ident = get_ident()
        return ident == self._holder or ident in self._deferring

    def _at(self, resource: str, key: Key, expected: int | None) -> Record | None:
        previous = self.get(resource, *key)
        found = previous.revision if previous else 0
        if expected is not None and expected != found:
            raise RevisionMismatch(found)
        return previous

    def _next(self, key: Key, obj: Obj) -> Record:
        revision = self._accepted + 1
        stored = {**obj, "metadata": {**(obj.get("metadata") or {}), "resourceVersion": str(revision)}}
        data = orjson.dumps(stored)
        check_stored_size(len(data))
        return Record(revision, key, data, stored, labels=indexed_labels(obj))

    def _accept(self, event: Event) -> None:
        if self._closed:
            raise StorageFailed("the store is closed", code=503)
        if event.type == "ADDED":
            self._journal.check_space()
        self._accepted = event.revision
        deferred = self._deferring.get(get_ident())
        if deferred is not None:
            deferred.last = event.revision
        self._pending.add(event)

    def _write(self) -> None:
        """Write the accepted changes to disk, then publish them to memory and watchers; roll back on failure."""
        with self._lock:
            batch, closed = self._pending.take_batch(), self._closed
        if not batch:
            return  # another writer has taken this one along
        try:
            if closed:
                raise StorageFailed("the store is closed", code=503)
            self._journal.append(
                [
                    Change(event.revision, event.resource, *event.key, event.current.data if event.current is not None else None)
                    for event in batch
                ]
            )
        except StorageFailed as error:  # every writer of the batch gets the error: no reader has seen the changes
            with self._lock:
                self._pending.roll_back(batch[0].revision, self._accepted, error)
                self._flushed = self._accepted
            return
        with self._lock:
            for event in batch:
                self._publish(event)
            self._flushed = self._revision

    def _publish(self, event: Event) -> None:
        self._revision = event.revision
        if event.current is None:
            self._objects.remove(event.resource, event.key)
        else:
            self._objects.put(event.resource, event.current)
        self._pending.published(event)
        self._history.append(event)
        self._watchers.notify(event)


class RevisionMismatch(Exception):
    """The object is not at the expected revision; `found` is its revision, 0 if it does not exist."""

    def __init__(self, found: int):
        super().__init__(f"found revision {found}")
        self.found = found


@dataclass
class Deferred:
    """The unflushed writes of one thread; `last` is the latest revision, 0 before the first."""

    last: int = 0


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
