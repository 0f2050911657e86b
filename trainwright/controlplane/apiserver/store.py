"""The objects of the cluster and the history of their changes: all in memory, with a journal on disk.

One counter of revisions for everything; an object's revision is its resourceVersion. A write is decided under a lock, goes to disk
together with whatever else was decided by then, and only then into memory and to the watchers: nobody sees a state that a crash
could take back. Of Kubernetes the store knows only where that version goes.
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

from trainwright.api.errors import Expired
from trainwright.api.objects import Obj
from trainwright.controlplane.apiserver.bounded import Bounded
from trainwright.controlplane.apiserver.collection import Collection, Records, indexed_labels, labels_in
from trainwright.controlplane.apiserver.events import Event, Events, Subscription
from trainwright.controlplane.apiserver.failures import StorageFailed
from trainwright.controlplane.apiserver.journal import Change, Durability, Journal
from trainwright.controlplane.apiserver.limits import check_stored_size
from trainwright.controlplane.apiserver.records import Key, Record

log = logging.getLogger(__name__)

RING_SIZE = 2000
"""Recent events kept for watchers that resume; at 4 KB an object this is some 50 MB at the very worst."""
RING_BYTES = 16 * 1024 * 1024
"""JSON of the recent events, and of the young records; parsed it takes several times as much."""
QUEUE_SIZE = 4096
"""Events that may wait for one watcher before it is told to list again."""
YOUNG = 2000
"""Records that stay parsed: those that were written last."""
FEW = 1000
"""Objects of one kind that stay parsed for ever: runtimes and namespaces are read with every write."""
_LOSSES = 100
"""Failed batches that are remembered for those who wait for them."""


class RevisionMismatch(Exception):
    """The object is not at the expected revision; `found` is where it is, 0 when it does not exist."""

    def __init__(self, found: int):
        super().__init__(f"found revision {found}")
        self.found = found


@dataclass
class Deferred:
    """What one thread has decided and not yet settled: `last` is its latest revision, 0 before the first."""

    last: int = 0


class Store:
    """Open, or create, the store in the file `path` (`:memory:` for one that nothing outlives).

    Safe to use from many threads. One process may own a file; that is for its caller to ensure.
    """

    def __init__(
        self, path: Path | str, *, durability: Durability = "normal", ring_size: int = RING_SIZE, queue_size: int = QUEUE_SIZE
    ):
        self._lock, self._writing = threading.RLock(), threading.Lock()
        self._holder, self._depth = 0, 0
        self._deferring: dict[int, Deferred] = {}
        self._queue_size = queue_size
        self._ring: Bounded[Event] = Bounded(ring_size, RING_BYTES)
        self._young: Bounded[tuple[Collection, Record]] = Bounded(YOUNG, RING_BYTES)
        self._subscriptions: dict[str, list[Subscription]] = {}
        self._decided: list[Event] = []
        self._coming: dict[tuple[str, Key], Event] = {}
        self._lost: deque[tuple[int, int, StorageFailed]] = deque(maxlen=_LOSSES)
        self._closed = False
        self.durability = durability
        self._journal = Journal(path, durability)
        self._objects: dict[str, Collection] = {}
        self._load()
        self._revision = self._floor = self._last = self._settled = self._journal.revision
        log.info("event=store_opened revision=%d objects=%d", self._revision, sum(map(len, self._objects.values())))

    @property
    def revision(self) -> int:
        """The revision of the latest change to anything that is on disk."""
        return self._revision

    @property
    def decided(self) -> int:
        """The revision of the latest change that was decided; `settle` brings it to disk."""
        return self._last

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Nothing is decided by others meanwhile: for reads, decisions and writes that belong together.

        Who holds the lock reads what has been decided, on disk or not. At the end the writes are settled, unless the thread defers
        that; raises StorageFailed.
        """
        self._lock.acquire()
        self._depth += 1
        self._holder = get_ident()
        try:
            yield
        finally:
            self._depth -= 1
            is_outermost, last = self._depth == 0, self._last
            settles = is_outermost and get_ident() not in self._deferring
            if is_outermost:
                self._holder = 0
            self._lock.release()
            if settles:
                self.settle(last)

    @contextmanager
    def deferred(self) -> Iterator[Deferred]:
        """The writes of this thread do not wait for the disk, and it reads what has been decided.

        Whoever uses it calls `settle` before anybody hears of what was done. Not to be nested.
        """
        ident, deferred = get_ident(), Deferred()
        self._deferring[ident] = deferred
        try:
            yield deferred
        finally:
            del self._deferring[ident]

    def settle(self, revision: int) -> None:
        """Return once everything up to this revision is on disk and visible, together with what else was decided by now.

        Raises StorageFailed when it could not be written; it is then as if it had never been decided.
        """
        while self._settled < revision:
            with self._writing:
                if self._settled < revision:
                    self._write()
        for first, last, error in list(self._lost):
            if first <= revision <= last:
                raise StorageFailed(error.message, code=error.code) from error

    def get(self, resource: str, namespace: str, name: str) -> Record | None:
        if self._coming and self._foresees():
            coming = self._coming.get((resource, (namespace, name)))
            if coming is not None:
                return coming.left
        collection = self._objects.get(resource)
        return collection.get((namespace, name)) if collection is not None else None

    def list(self, resource: str, namespace: str | None = None, *, label: tuple[str, str] | None = None) -> tuple[Records, int]:
        """All objects of a resource, by namespace and name, and the revision at which that is so.

        `label` (one of `collection.INDEXED`, and its value) leaves out those that have it not.
        """
        with self._lock:
            collection = self._collection(resource)
            found = collection.labelled(*label, namespace) if label else collection.all(namespace)
            if self._coming and self._foresees():
                found = self._with_coming(resource, namespace, found)
            return found, self._revision

    def list_at(self, resource: str, namespace: str | None, revision: int) -> Records:
        """The list as it was at an earlier revision. Raises Expired when that is longer ago than the store remembers."""
        with self._lock:
            later = [event for event in self.events_since(revision) if event.resource == resource]
            records = self._collection(resource).all(namespace)
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

    def put(self, resource: str, namespace: str, name: str, obj: Obj, expected: int | None = None) -> Record:
        """Write an object, if it is still at `expected` (0: if it does not exist; None: in any case).

        What is stored has its resourceVersion, and shares with the object what is in it: that belongs to the store from now on.
        Raises RevisionMismatch, StorageFailed.
        """
        with self.locked():
            previous = self._at(resource, (namespace, name), expected)
            record = self._next((namespace, name), obj)
            self._decide(Event("MODIFIED" if previous else "ADDED", resource, record.key, record, previous))
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
            self._decide(Event("DELETED", resource, record.key, record, previous))
        return record

    def size(self, resource: str) -> int:
        """How many objects of a resource there are."""
        collection = self._objects.get(resource)
        return len(collection) if collection is not None else 0

    def sizes(self) -> dict[str, int]:
        """How many objects of each resource there are."""
        with self._lock:
            return {resource: len(objects) for resource, objects in self._objects.items() if len(objects)}

    def watchers(self) -> dict[str, int]:
        """How many listen to each resource."""
        with self._lock:
            return {resource: len(group) for resource, group in self._subscriptions.items() if group}

    def events_since(self, revision: int) -> Events:
        """Every change after `revision`, oldest first. Raises Expired when some of them are forgotten."""
        with self._lock:
            if revision < self._floor:
                raise Expired(f"too old resource version: {revision} ({self._floor})")
            if revision >= self._revision:
                return []
            # Newest first, because who resumes is seldom far behind.
            later: Events = []
            for event in reversed(self._ring):
                if event.revision <= revision:
                    break
                later.append(event)
            later.reverse()
            return later

    def subscribe(
        self, resource: str, namespace: str | None = None, since: int | None = None, *, wake: Callable[[], None] | None = None
    ) -> Subscription:
        """Hear of every change after `since`; without it, of everything after now, with what there is in `initial`.

        `wake` is called under the lock of a write: it must return at once. Raises Expired. End it with `unsubscribe`.
        """
        with self._lock:
            initial = self._collection(resource).all(namespace) if since is None else []
            missed = [] if since is None else self.events_since(since)
            start = self._revision if since is None else since
            subscription = Subscription(resource, namespace, initial, start, self._queue_size, wake)
            for event in missed:
                if subscription.wants(event):
                    subscription.push(event)
            if self._closed:
                subscription.close()
            else:
                self._subscriptions.setdefault(resource, []).append(subscription)
            return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """End a subscription; one that has ended already is fine."""
        with self._lock:
            others = self._subscriptions.get(subscription.resource, [])
            if subscription in others:
                others.remove(subscription)
        subscription.close()

    def progress(self, subscription: Subscription) -> int:
        """The revision up to which the subscriber has heard everything: what a bookmark may say."""
        with self._lock:
            return subscription.advance(self._revision)

    def close(self) -> None:
        """End every subscription and close the journal; what was decided and not settled is lost."""
        with self._writing, self._lock:
            if self._closed:
                return
            self._closed = True
            open_ones = [subscription for group in self._subscriptions.values() for subscription in group]
            self._subscriptions.clear()
            self._journal.close()
        for subscription in open_ones:
            subscription.close()
        log.info("event=store_closed revision=%d", self._revision)

    def _foresees(self) -> bool:
        """Whether this thread reads what has been decided."""
        ident = get_ident()
        return ident == self._holder or ident in self._deferring

    def _load(self) -> None:
        sizes = self._journal.sizes()
        for resource, namespace, name, revision, data in self._journal.objects():
            record = Record(revision, (namespace, name), data, labels=labels_in(data))
            if sizes[resource] > FEW:
                record.pack()
            self._collection(resource).put(record)

    def _collection(self, resource: str) -> Collection:
        found = self._objects.get(resource)
        if found is None:
            found = self._objects[resource] = Collection()
        return found

    def _with_coming(self, resource: str, namespace: str | None, found: Records) -> Records:
        """The list as it will be when everything decided is on disk."""
        objects = {record.key: record for record in found}
        for event in self._coming.values():
            if event.resource != resource or namespace not in (None, event.key[0]):
                continue
            if event.left is None:
                objects.pop(event.key, None)
            else:
                objects[event.key] = event.left
        return [objects[key] for key in sorted(objects)]

    def _at(self, resource: str, key: Key, expected: int | None) -> Record | None:
        previous = self.get(resource, *key)
        found = previous.revision if previous else 0
        if expected is not None and expected != found:
            raise RevisionMismatch(found)
        return previous

    def _next(self, key: Key, obj: Obj) -> Record:
        revision = self._last + 1
        stored = {**obj, "metadata": {**(obj.get("metadata") or {}), "resourceVersion": str(revision)}}
        data = orjson.dumps(stored)
        check_stored_size(len(data))
        return Record(revision, key, data, stored, labels=indexed_labels(obj))

    def _decide(self, event: Event) -> None:
        if self._closed:
            raise StorageFailed("the store is closed", code=503)
        self._last = event.revision
        deferred = self._deferring.get(get_ident())
        if deferred is not None:
            deferred.last = event.revision
        self._decided.append(event)
        self._coming[event.resource, event.key] = event

    def _write(self) -> None:
        """Bring what has been decided to disk, then to memory and the watchers; or take it back."""
        with self._lock:
            batch, self._decided = self._decided, []
            closed = self._closed
        if not batch:
            return
        try:
            if closed:
                raise StorageFailed("the store is closed", code=503)
            self._journal.append([_change(event) for event in batch])
        except StorageFailed as error:
            self._take_back(batch[0].revision, error)
            return
        with self._lock:
            for event in batch:
                self._publish(event)
            self._settled = self._revision

    def _take_back(self, first: int, error: StorageFailed) -> None:
        """Nothing decided from this revision on has happened: later decisions were built on it."""
        with self._lock:
            self._decided.clear()
            self._coming.clear()
            self._lost.append((first, self._last, error))
            self._settled = self._last

    def _publish(self, event: Event) -> None:
        collection, place = self._collection(event.resource), (event.resource, event.key)
        self._revision = event.revision
        if event.left is None:
            collection.remove(event.key)
        else:
            collection.put(event.left)
            self._age(collection, event.left)
        if self._coming.get(place) is event:
            del self._coming[place]
        for forgotten in self._ring.append(event, len(event.record.data)):
            self._floor = forgotten.revision
        self._tell(event)

    def _age(self, collection: Collection, record: Record) -> None:
        """Pack what was written long ago; what is not current any more goes by itself, and few objects of a kind may stay."""
        for whose, old in self._young.append((collection, record), len(record.data)):
            if len(whose) > FEW and whose.get(old.key) is old:
                old.pack()

    def _tell(self, event: Event) -> None:
        listeners = self._subscriptions.get(event.resource)
        if not listeners:
            return
        for subscription in listeners:
            if subscription.wants(event):
                subscription.push(event)
        if any(subscription.overflowed for subscription in listeners):
            self._subscriptions[event.resource] = [subscription for subscription in listeners if not subscription.overflowed]
            log.warning("event=watcher_too_slow resource=%s queue=%d", event.resource, self._queue_size)


def _change(event: Event) -> Change:
    data = event.left.data if event.left is not None else None
    return Change(event.revision, event.resource, *event.key, data)
