"""The store on disk: one sqlite file in WAL mode with the current state and the last revision.

Changes come in batches, one transaction each. `durability` says what a batch has survived when it is written: `normal` the end of
this process, `full` the loss of power.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from trainwright.controlplane.apiserver.storage.journal_schema import bring_up_to_date, last_revision
from trainwright.controlplane.apiserver.wire.api_errors import StorageFailed

log = logging.getLogger(__name__)

Durability = Literal["full", "normal"]
RESTART_GAP = 1000
"""How far the counter jumps when a file is opened: `normal` durability may lose the last commits with the power, and a
version that a client has seen must never be given out for something else."""

_REACHED = "UPDATE meta SET value = ? WHERE key = 'revision'"
_KEEP = (
    "INSERT INTO current (resource, namespace, name, revision, data) VALUES (?, ?, ?, ?, ?) "
    "ON CONFLICT (resource, namespace, name) DO UPDATE SET revision = excluded.revision, data = excluded.data"
)
_FORGET = "DELETE FROM current WHERE resource = ? AND namespace = ? AND name = ?"


@dataclass(frozen=True, slots=True)
class Change:
    """One revision. Without `data` the object is gone."""

    revision: int
    resource: str
    namespace: str
    name: str
    data: bytes | None


class Journal:
    """Open, or create, the file `path` (`:memory:` for one that nothing outlives). Not for two threads at a time.

    Raises UnknownSchema, sqlite3.Error.
    """

    def __init__(self, path: Path | str, durability: Durability = "normal"):
        self._db = _open(str(path), durability)
        try:
            self.revision = self._next_revision(bring_up_to_date(self._db))
        except BaseException:
            self._db.close()
            raise

    def objects(self) -> Iterator[tuple[str, str, str, int, bytes]]:
        """All that there is: resource, namespace, name, revision and JSON."""
        yield from self._db.execute("SELECT resource, namespace, name, revision, data FROM current")

    def sizes(self) -> dict[str, int]:
        """How many objects of each resource there are."""
        return dict(self._db.execute("SELECT resource, COUNT(*) FROM current GROUP BY resource").fetchall())

    def append(self, changes: list[Change]) -> None:
        """Write a batch, all of it or nothing. Raises StorageFailed."""
        last = {(change.resource, change.namespace, change.name): change for change in changes}
        kept = [(*key, change.revision, change.data) for key, change in last.items() if change.data is not None]
        gone = [key for key, change in last.items() if change.data is None]
        try:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.execute(_REACHED, (changes[-1].revision,))
            self._db.executemany(_KEEP, kept)
            self._db.executemany(_FORGET, gone)
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            self._undo()
            log.error("event=journal_failed changes=%d first=%d error=%r", len(changes), changes[0].revision, str(error))
            hint = ": free some space, then try again" if "full" in str(error) else ""
            raise StorageFailed(f"the change could not be written to the cluster's database ({error}){hint}") from error

    def close(self) -> None:
        self._db.close()

    def _undo(self) -> None:
        try:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
        except sqlite3.Error as error:
            log.error("event=rollback_failed error=%r", str(error))

    def _next_revision(self, was_there: bool) -> int:
        """The revision to go on from, written down before it is used."""
        before = last_revision(self._db)
        revision = before + RESTART_GAP if was_there else before
        self._db.execute("INSERT OR REPLACE INTO meta (key, value) VALUES ('revision', ?)", (revision,))
        return revision


def _open(path: str, durability: Durability) -> sqlite3.Connection:
    """The database, readable by its owner only: it holds the Secrets (sqlite gives its side files the same mode)."""
    if path != ":memory:":
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        os.chmod(path, 0o600)
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute(f"PRAGMA synchronous = {'FULL' if durability == 'full' else 'NORMAL'}")
    return db
