"""The objects of the cluster and the history of their changes: all in memory, with sqlite as the journal.

One counter of revisions for everything; an object's revision is its resourceVersion. Disk first, then memory, then watchers,
under one lock: nobody sees a state that a crash could take back. Of Kubernetes the store knows only where that version goes.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson

from trainwright.api.errors import Expired
from trainwright.api.objects import Obj
from trainwright.controlplane.apiserver.events import Event, Events, Key, Record, Records, Subscription
from trainwright.controlplane.apiserver.failures import StorageFailed
from trainwright.controlplane.apiserver.limits import check_stored_size

log = logging.getLogger(__name__)

SCHEMA_VERSION = 1
RING_SIZE = 2000
"""Recent events kept for watchers that resume; at 4 KB an object this is some 50 MB at the very worst."""
LOG_SIZE = 1000
"""Revisions that stay in the journal's log after compaction (as in kine)."""
QUEUE_SIZE = 4096
"""Events that may wait for one watcher before it is told to list again."""
RESTART_GAP = 1000
"""How far the counter jumps when a file is opened: synchronous=NORMAL may lose the last commits with the power, and a
version that a client has seen must never be given out for something else."""

_TABLES = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS log (
  revision INTEGER PRIMARY KEY,
  resource TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL, type TEXT NOT NULL, data BLOB);
CREATE TABLE IF NOT EXISTS current (
  resource TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL, revision INTEGER NOT NULL, data BLOB NOT NULL,
  PRIMARY KEY (resource, namespace, name));
"""


class RevisionMismatch(Exception):
    """The object is not at the expected revision; `found` is where it is, 0 when it does not exist."""

    def __init__(self, found: int):
        super().__init__(f"found revision {found}")
        self.found = found


class UnknownSchema(Exception):
    """The file was written by a version of Trainwright that this one does not understand."""


class Store:
    """Open, or create, the store in the file `path` (`:memory:` for one that nothing outlives).

    One process may own a file; that is for its caller to ensure.
    """

    def __init__(self, path: Path | str, *, ring_size: int = RING_SIZE, queue_size: int = QUEUE_SIZE):
        self._lock = threading.RLock()
        self._queue_size = queue_size
        self._objects: dict[str, dict[Key, Record]] = {}
        self._ring: deque[Event] = deque()
        self._ring_size = ring_size
        self._subscriptions: dict[str, list[Subscription]] = {}
        self._closed = False
        self._db = _open(str(path))
        try:
            self._revision = self._load()
        except BaseException:
            self._db.close()
            raise
        self._floor = self._revision
        self._written = 0
        log.info("event=store_opened revision=%d objects=%d", self._revision, sum(map(len, self._objects.values())))

    @property
    def revision(self) -> int:
        """The revision of the latest change to anything."""
        return self._revision

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Nothing changes meanwhile: for a read, a decision and a write that belong together."""
        with self._lock:
            yield

    def get(self, resource: str, namespace: str, name: str) -> Record | None:
        return self._objects.get(resource, {}).get((namespace, name))

    def list(self, resource: str, namespace: str | None = None) -> tuple[Records, int]:
        """All objects of a resource, by namespace and name, and the revision at which that is so."""
        with self._lock:
            return _sorted(self._objects.get(resource, {}), namespace), self._revision

    def list_at(self, resource: str, namespace: str | None, revision: int) -> Records:
        """The list as it was at an earlier revision. Raises Expired when that is longer ago than the store remembers."""
        with self._lock:
            later = self.events_since(revision)
            if not later:
                return _sorted(self._objects.get(resource, {}), namespace)
            objects = dict(self._objects.get(resource, {}))
            for event in reversed(later):
                if event.resource != resource:
                    continue
                if event.previous is None:
                    objects.pop(event.key, None)
                else:
                    objects[event.key] = event.previous
            return _sorted(objects, namespace)

    def put(self, resource: str, namespace: str, name: str, obj: Obj, expected: int | None = None) -> Record:
        """Write an object, if it is still at `expected` (0: if it does not exist; None: in any case).

        The object is copied and gets its resourceVersion. Raises RevisionMismatch, StorageFailed.
        """
        with self._lock:
            previous = self._at(resource, (namespace, name), expected)
            record = self._next(obj)
            kind = "MODIFIED" if previous else "ADDED"
            self._journal(
                record.revision,
                (resource, namespace, name, kind, record.data),
                "INSERT OR REPLACE INTO current (resource, namespace, name, revision, data) VALUES (?, ?, ?, ?, ?)",
                (resource, namespace, name, record.revision, record.data),
            )
            self._objects.setdefault(resource, {})[(namespace, name)] = record
            self._publish(Event(kind, resource, (namespace, name), record, previous))
            return record

    def delete(self, resource: str, namespace: str, name: str, expected: int | None = None, last: Obj | None = None) -> Record:
        """Remove an object; `last` is the state that its watchers see (the stored one unless given).

        Raises RevisionMismatch (also when there is none), StorageFailed.
        """
        with self._lock:
            previous = self._at(resource, (namespace, name), expected)
            if previous is None:
                raise RevisionMismatch(0)
            record = self._next(previous.object if last is None else last)
            self._journal(
                record.revision,
                (resource, namespace, name, "DELETED", None),
                "DELETE FROM current WHERE resource = ? AND namespace = ? AND name = ?",
                (resource, namespace, name),
            )
            del self._objects[resource][(namespace, name)]
            self._publish(Event("DELETED", resource, (namespace, name), record, previous))
            return record

    def sizes(self) -> dict[str, int]:
        """How many objects of each resource there are."""
        with self._lock:
            return {resource: len(objects) for resource, objects in self._objects.items() if objects}

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
            initial = _sorted(self._objects.get(resource, {}), namespace) if since is None else []
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
        """End every subscription and close the journal."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            open_ones = [subscription for group in self._subscriptions.values() for subscription in group]
            self._subscriptions.clear()
            self._db.close()
        for subscription in open_ones:
            subscription.close()
        log.info("event=store_closed revision=%d", self._revision)

    def _at(self, resource: str, key: Key, expected: int | None) -> Record | None:
        previous = self._objects.get(resource, {}).get(key)
        found = previous.revision if previous else 0
        if expected is not None and expected != found:
            raise RevisionMismatch(found)
        return previous

    def _next(self, obj: Obj) -> Record:
        revision = self._revision + 1
        data = orjson.dumps({**obj, "metadata": {**(obj.get("metadata") or {}), "resourceVersion": str(revision)}})
        check_stored_size(len(data))
        return Record(revision, orjson.loads(data), data)

    def _journal(self, revision: int, entry: tuple[object, ...], statement: str, values: tuple[object, ...]) -> None:
        """One change, on disk before anybody hears of it."""
        if self._closed:
            raise StorageFailed("the store is closed", code=503)
        try:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.execute(
                "INSERT INTO log (revision, resource, namespace, name, type, data) VALUES (?, ?, ?, ?, ?, ?)", (revision, *entry)
            )
            self._db.execute(statement, values)
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            log.error("event=journal_failed resource=%s namespace=%s name=%s error=%r", *entry[:3], str(error))
            hint = ": free some space, then try again" if "full" in str(error) else ""
            raise StorageFailed(f"the change could not be written to the cluster's database ({error}){hint}") from error
        self._written += 1
        if self._written >= LOG_SIZE // 2:
            self._compact(revision)

    def _compact(self, revision: int) -> None:
        """Forget what is older than the last `LOG_SIZE` revisions; a failure costs only space, and is tried again later."""
        try:
            self._db.execute("DELETE FROM log WHERE revision <= ?", (revision - LOG_SIZE,))
            self._written = 0
        except sqlite3.Error as error:
            log.warning("event=compaction_failed error=%r", str(error))

    def _publish(self, event: Event) -> None:
        self._revision = event.revision
        self._ring.append(event)
        if len(self._ring) > self._ring_size:
            self._floor = self._ring.popleft().revision
        listeners = self._subscriptions.get(event.resource)
        if not listeners:
            return
        for subscription in listeners:
            if subscription.wants(event):
                subscription.push(event)
        if any(subscription.overflowed for subscription in listeners):
            self._subscriptions[event.resource] = [subscription for subscription in listeners if not subscription.overflowed]
            log.warning("event=watcher_too_slow resource=%s queue=%d", event.resource, self._queue_size)

    def _load(self) -> int:
        """Read the journal; returns the revision to go on from."""
        self._db.executescript(_TABLES)
        row = self._db.execute("SELECT value FROM meta WHERE key = 'schema'").fetchone()
        if row and row[0] != SCHEMA_VERSION:
            raise UnknownSchema(f"the cluster's database has schema {row[0]}, this version of Trainwright reads {SCHEMA_VERSION}")
        for resource, namespace, name, revision, data in self._db.execute(
            "SELECT resource, namespace, name, revision, data FROM current"
        ):
            self._objects.setdefault(resource, {})[(namespace, name)] = Record(revision, orjson.loads(data), data)
        last = self._db.execute(
            "SELECT value FROM meta WHERE key = 'revision' UNION ALL SELECT MAX(revision) FROM log"
        ).fetchall()
        before = max((value or 0 for (value,) in last), default=0)
        revision = before + RESTART_GAP if row else before
        with self._db:
            self._db.execute(
                "INSERT OR REPLACE INTO meta (key, value) VALUES ('schema', ?), ('revision', ?)", (SCHEMA_VERSION, revision)
            )
        return revision


def _open(path: str) -> sqlite3.Connection:
    """The database, readable by its owner only: it holds the Secrets (sqlite gives its side files the same mode)."""
    if path != ":memory:":
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        os.chmod(path, 0o600)
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = NORMAL")
    return db


def _sorted(objects: dict[Key, Record], namespace: str | None) -> Records:
    return [objects[key] for key in sorted(objects) if namespace in (None, key[0])]
