"""Persists the store in one SQLite file (WAL mode) with the current objects and the last revision.

Each batch of changes is one transaction. A committed batch survives a crash of the process with `durability` `normal`, and
also a power failure with `full`.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import orjson

from trainwright.controlplane.apiserver.storage.journal_reserve import Reserve
from trainwright.controlplane.apiserver.storage.journal_schema import create_or_check, last_revision
from trainwright.controlplane.apiserver.wire.api_errors import StorageFailed

log = logging.getLogger(__name__)

Durability = Literal["full", "normal"]
RESTART_GAP = 1000
"""Revisions skipped when a file is opened: with `normal` durability a power failure may lose the last commits, and a resource
version that a client has seen must never be reused."""

FREE_SOME_SPACE = "free some space, then try again"
_REACHED = "UPDATE meta SET value = ? WHERE key = 'revision'"
_KEEP = (
    "INSERT INTO current (resource, namespace, name, revision, data) VALUES (?, ?, ?, ?, ?) "
    "ON CONFLICT (resource, namespace, name) DO UPDATE SET revision = excluded.revision, data = excluded.data"
)
_SECRETS = ("secrets",)
"""Resources whose earlier values must not stay in the file, nor in its write-ahead log."""
_FORGET = "DELETE FROM current WHERE resource = ? AND namespace = ? AND name = ?"


@dataclass(frozen=True, slots=True)
class Change:
    """One revision of an object; `data` is None for a deletion."""

    revision: int
    resource: str
    namespace: str
    name: str
    data: bytes | None


class Journal:
    """Opens or creates the file `path` (`:memory:` for a temporary one). Not thread-safe.

    Raises UnknownSchema, sqlite3.Error, also for a file that a power failure or a bad disk has damaged: nothing is done with half
    of a cluster's objects.
    """

    def __init__(self, path: Path | str, durability: Durability = "normal"):
        self._db = _open(str(path), durability)
        try:
            _check(self._db)
            self.revision = self._next_revision(create_or_check(self._db))
            self._reserve = Reserve(self._db, str(path))
            self._is_erasure_due = False
        except BaseException:
            self._db.close()
            raise

    def objects(self) -> Iterator[tuple[str, str, str, int, bytes]]:
        """All objects: resource, namespace, name, revision and JSON. Raises sqlite3.DatabaseError for a damaged one."""
        for resource, namespace, name, revision, data in self._db.execute(
            "SELECT resource, namespace, name, revision, data FROM current"
        ):
            try:
                orjson.loads(data)  # SQLite does not notice that a page of a large value is torn
            except ValueError as error:
                raise sqlite3.DatabaseError(f"{resource} {namespace}/{name} is damaged") from error
            yield resource, namespace, name, revision, data

    def sizes(self) -> dict[str, int]:
        """The number of objects of each resource."""
        return dict(self._db.execute("SELECT resource, COUNT(*) FROM current GROUP BY resource").fetchall())

    def append(self, changes: list[Change]) -> None:
        """Write a batch atomically. Raises StorageFailed."""
        try:
            self._commit(changes)
        except sqlite3.Error as error:
            self._undo()
            log.error("event=journal_failed changes=%d first=%d error=%r", len(changes), changes[0].revision, str(error))
            hint = f": {FREE_SOME_SPACE}" if "full" in str(error) else ""
            raise StorageFailed(f"the change could not be written to the cluster's database ({error}){hint}") from error
        self._keep_room()
        self._is_erasure_due = self._is_erasure_due or any(change.resource in _SECRETS for change in changes)
        if self._is_erasure_due and self._reserve.has_space():
            self._erase()

    def check_space(self) -> None:
        """Raise StorageFailed if the disk is full: what room is left is for changes and deletions of what there is."""
        if not self._reserve.has_space():
            raise StorageFailed(f"no object can be created, since the disk of the cluster's database is full: {FREE_SOME_SPACE}")

    def _commit(self, changes: list[Change]) -> None:
        last = {(change.resource, change.namespace, change.name): change for change in changes}
        kept = [(*key, change.revision, change.data) for key, change in last.items() if change.data is not None]
        gone = [key for key, change in last.items() if change.data is None]
        self._db.execute("BEGIN IMMEDIATE")
        self._db.execute(_REACHED, (changes[-1].revision,))
        self._db.executemany(_KEEP, kept)
        self._db.executemany(_FORGET, gone)
        self._db.execute("COMMIT")

    def close(self) -> None:
        self._db.close()
        self._reserve.close()

    def _keep_room(self) -> None:
        """Called after a commit, which an error does not take back."""
        try:
            self._reserve.keep()
        except sqlite3.Error as error:
            self._undo()
            log.error("event=reserve_failed error=%r", str(error))

    def _erase(self) -> None:
        """Remove earlier values from the write-ahead log; the file has none, because of `secure_delete`.

        A backup that is being read delays this until the next such write, a full disk until there is space. The batch is written.
        """
        try:
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            self._is_erasure_due = False
            self._reserve.allocate_log()
        except sqlite3.Error as error:
            log.warning("event=journal_not_truncated error=%r", str(error))

    def _undo(self) -> None:
        try:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
        except sqlite3.Error as error:
            log.error("event=rollback_failed error=%r", str(error))

    def _next_revision(self, was_there: bool) -> int:
        """The first revision to continue from, stored before it is used."""
        before = last_revision(self._db)
        revision = before + RESTART_GAP if was_there else before
        self._db.execute("INSERT OR REPLACE INTO meta (key, value) VALUES ('revision', ?)", (revision,))
        return revision


def _check(db: sqlite3.Connection) -> None:
    (found,) = db.execute("PRAGMA quick_check(1)").fetchone()
    if found != "ok":
        raise sqlite3.DatabaseError(f"the file is damaged: {found}")


def _open(path: str, durability: Durability) -> sqlite3.Connection:
    """Open the database, readable only by its owner because it holds Secrets (SQLite's side files inherit the mode)."""
    if path != ":memory:":
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        os.chmod(path, 0o600)
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA secure_delete = ON")  # overwrites what was deleted, such as Secrets
    db.execute(f"PRAGMA synchronous = {'FULL' if durability == 'full' else 'NORMAL'}")
    return db
