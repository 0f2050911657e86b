"""The objects of the cluster and the history of their changes: all in memory, with a journal on disk.

One counter of revisions for everything; an object's revision is its resourceVersion. A write is accepted under a lock, goes to disk
together with whatever else was accepted by then, and only then into memory and to the watchers: no reader sees a state that a crash
could undo. The only thing that the store knows of Kubernetes is where that version goes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import get_ident

import orjson

from trainwright.api.objects import Obj
from trainwright.controlplane.apiserver.storage.collection import Records, indexed_labels
from trainwright.controlplane.apiserver.storage.events import Event, Events, Subscription
from trainwright.controlplane.apiserver.storage.history import HISTORY_SIZE, History
from trainwright.controlplane.apiserver.storage.journal import Change, Durability, Journal
from trainwright.controlplane.apiserver.storage.object_table import ObjectTable
from trainwright.controlplane.apiserver.storage.pending_writes import PendingWrites
from trainwright.controlplane.apiserver.storage.records import Key, Record
from trainwright.controlplane.apiserver.storage.watchers import Watchers
from trainwright.controlplane.apiserver.wire.api_errors import StorageFailed
from trainwright.controlplane.apiserver.wire.limits import check_stored_size

log = logging.getLogger(__name__)

QUEUE_SIZE = 4096
"""Events that may wait for one watcher before it has to list again."""


class RevisionMismatch(Exception):
    """The object is not at the expected revision; `found` is its revision, 0 when it does not exist."""

    def __init__(self, found: int):
        super().__init__(f"found revision {found}")
        self.found = found


@dataclass
class Deferred:
    """What one thread has written and not yet flushed: `last` is its latest revision, 0 before the first."""

    last: int = 0


class Store:
    """Open, or create, the store in the file `path` (`:memory:` for one that ends with the process).

    Safe to use from many threads. One process may own a file; that is for its caller to ensure.
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
        """The revision of the latest change to anything that is on disk."""
        return self._revision

    @property
    def accepted_revision(self) -> int:
        """The revision of the latest change that was accepted; `flush` brings it to disk."""
        return self._accepted

    @contextmanager
    def locked(self) -> Iterator[None]:
        """No other thread writes meanwhile: for reads and writes that belong together.

        The holder of the lock reads what has been accepted, on disk or not. At the end the writes are flushed, unless the thread
        defers that; raises StorageFailed.
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
        """The writes of this thread do not wait for the disk, and it reads what has been accepted.

        The caller calls `flush` before it reports what was done. Not to be nested.
        """
        ident, deferred = get_ident(), Deferred()
        self._deferring[ident] = deferred
        try:
            yield deferred
        finally:
            del self._deferring[ident]

    def flush(self, revision: int) -> None:
        """Return once everything up to this revision is on disk and visible, together with what else was accepted by now.

        Raises StorageFailed when it could not be written; it is then as if it had never been accepted.
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
        """All objects of a resource, by namespace and name, and the revision of that list.

        `label` (one of `collection.INDEXED`, and its value) selects by that label.
        """
        with self._lock:
            found = self._objects.labelled(resource, label, namespace) if label else self._objects.all(resource, namespace)
            if self._pending.latest and self._sees_pending():
                found = self._pending.applied_to(found, resource, namespace)
            return found, self._revision

    def list_at(self, resource: str, namespace: str | None, revision: int) -> Records:
        """The list as it was at an earlier revision. Raises Expired when that is longer ago than the history reaches."""
        with self._lock:
            later = [event for event in self.events_since(revision) if event.resource == resource]
            return History.undone(self._objects.all(resource, namespace), later, namespace)

    def put(self, resource: str, namespace: str, name: str, obj: Obj, expected: int | None = None) -> Record:
        """Write an object, if it is still at `expected` (0: if it does not exist; None: in any case).

        What is stored has its resourceVersion, and shares with the object what is in it: that belongs to the store from now on.
        Raises RevisionMismatch, StorageFailed.
        """
        with self.locked():
            previous = self._at(resource, (namespace, name), expected)
            record = self._next((namespace, name), obj)
            self._accept(Event("MODIFIED" if previous else "ADDED", resource, record.key, record, previous))
        return record

    def delete(self, resource: str, namespace: str, name: str, expected: int | None = None, last: Obj | None = None) -> Record:
        """Remove an object; `last` is the state that its watchers see (the stored one unless given).

        Raises RevisionMismatch (also when there is none), StorageFailed.
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
        """Every change after `revision`, oldest first. Raises Expired when some of them are forgotten."""
        with self._lock:
            return self._history.since(revision, self._revision)

    def subscribe(
        self, resource: str, namespace: str | None = None, since: int | None = None, *, wake: Callable[[], None] | None = None
    ) -> Subscription:
        """Receive every change after `since`; without it, every change from now on, with the current objects in `initial`.

        `wake` is called under the lock of a write: it must return at once. Raises Expired. End it with `unsubscribe`.
        """
        with self._lock:
            initial = self._objects.all(resource, namespace) if since is None else []
            missed = [] if since is None else self.events_since(since)
            start = self._revision if since is None else since
            subscription = Subscription(resource, namespace, initial, start, self._watchers.queue_size, wake)
            for event in missed:
                if subscription.wants(event):
                    subscription.push(event)
            if self._closed:
                subscription.close()
            else:
                self._watchers.add(subscription)
            return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """End a subscription; one that has ended already is fine."""
        with self._lock:
            self._watchers.remove(subscription)
        subscription.close()

    def progress(self, subscription: Subscription) -> int:
        """The revision up to which the subscriber has received everything: what a bookmark may carry."""
        with self._lock:
            return subscription.advance(self._revision)

    def close(self) -> None:
        """End every subscription and close the journal; what was accepted and not flushed is lost."""
        with self._writing, self._lock:
            if self._closed:
                return
            self._closed = True
            subscriptions = self._watchers.remove_all()
            self._journal.close()
        for subscription in subscriptions:
            subscription.close()
        log.info("event=store_closed revision=%d", self._revision)

    def _sees_pending(self) -> bool:
        """Whether this thread reads what has been accepted."""
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
        self._accepted = event.revision
        deferred = self._deferring.get(get_ident())
        if deferred is not None:
            deferred.last = event.revision
        self._pending.add(event)

    def _write(self) -> None:
        """Bring what has been accepted to disk, then to memory and the watchers; or roll it back."""
        with self._lock:
            batch, closed = self._pending.take_batch(), self._closed
        if not batch:
            return
        try:
            if closed:
                raise StorageFailed("the store is closed", code=503)
            self._journal.append([_change(event) for event in batch])
        except StorageFailed as error:
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


def _change(event: Event) -> Change:
    data = event.current.data if event.current is not None else None
    return Change(event.revision, event.resource, *event.key, data)
