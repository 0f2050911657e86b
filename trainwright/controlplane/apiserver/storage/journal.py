"""Persists the store in one SQLite file (WAL mode) with the current objects and the last revision.

Each batch of changes is one transaction. A committed batch survives a crash of the process with `durability` `normal`, and also a
power failure with `full`. A file with another schema is rejected and left as it is.

Room is kept for the journal: on a full disk pods can still be deleted and end, which is what makes room again. The write-ahead log is
written from its beginning again after each checkpoint, so its room is allocated once. The database file is kept longer than its
contents, so that what the log holds can always be moved into it.
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

from trainwright.controlplane.apiserver.wire.api_errors import StorageFailed

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
LOG_BYTES = 6 * 1024 * 1024
"""A checkpoint begins after 1,000 pages of 4 KiB, at the end of a transaction."""
ROOM_BYTES, LEAST_BYTES = 2 * 1024 * 1024, 1024 * 1024
"""What a file gets beyond its contents, and when it gets it again: a checkpoint cuts it off."""
SCHEMA_VERSION = 3
"""The number only goes up, also when a layout is taken back: commits before this rule wrote 1 and 2. From release 0.1.0 on, files of
earlier releases are converted."""
TABLES = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS current (
  resource TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL, revision INTEGER NOT NULL, data BLOB NOT NULL,
  PRIMARY KEY (resource, namespace, name));
"""
log = logging.getLogger(__name__)


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
        except BaseException:  # the file must not stay open, whatever is wrong with it
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
        except sqlite3.Error as error:  # such as a full disk: the batch is as if it was never accepted
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
        except sqlite3.Error as error:  # the batch is written: the room is looked for again after the next one
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
        except sqlite3.Error as error:  # a reader, such as a backup, holds the log
            log.warning("event=journal_not_truncated error=%r", str(error))

    def _undo(self) -> None:
        try:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
        except sqlite3.Error as error:  # SQLite has rolled back already
            log.error("event=rollback_failed error=%r", str(error))

    def _next_revision(self, was_there: bool) -> int:
        """The first revision to continue from, stored before it is used."""
        before = last_revision(self._db)
        revision = before + RESTART_GAP if was_there else before
        self._db.execute("INSERT OR REPLACE INTO meta (key, value) VALUES ('revision', ?)", (revision,))
        return revision


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


def _check(db: sqlite3.Connection) -> None:
    (found,) = db.execute("PRAGMA quick_check(1)").fetchone()
    if found != "ok":
        raise sqlite3.DatabaseError(f"the file is damaged: {found}")


@dataclass(frozen=True, slots=True)
class Change:
    """One revision of an object; `data` is None for a deletion."""

    revision: int
    resource: str
    namespace: str
    name: str
    data: bytes | None


class Reserve:
    """The room of a database file, which is open as `db`; none for one in memory. Not thread-safe, but for `has_space`.

    The file is held open as long as the database: to close it would drop SQLite's locks on it, as POSIX has it.
    """

    def __init__(self, db: sqlite3.Connection, path: str):
        self._db, self._path = db, path
        self._is_short = False
        """Whether what is left is for changes and deletions."""
        self._file = self._log = -1
        if path == ":memory:" or not hasattr(os, "posix_fallocate"):  # macOS
            return
        self._file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self._log = os.open(f"{path}-wal", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.allocate_log()
        self.keep()

    def close(self) -> None:
        """Call it after the database is closed."""
        for file in (self._file, self._log):
            if file >= 0:
                os.close(file)
        self._file = self._log = -1

    def allocate_log(self) -> None:
        """Allocate the write-ahead log, at the beginning and after it was truncated."""
        if self._log >= 0 and not _allocate(self._log, LOG_BYTES):
            self._is_short = True

    def keep(self) -> None:
        """Make up for what the last write has taken; without space the reserve is short until there is some. Raises sqlite3.Error."""
        if self._file < 0:
            return  # in memory, as in tests
        used = self._scalar("page_count") * self._scalar("page_size")
        has_room = os.fstat(self._file).st_size >= used + LEAST_BYTES
        if (has_room and not self._is_short) or not self.has_space():
            return  # enough is left, or there is nothing to allocate
        was_short = self._is_short
        self._is_short = not (_allocate(self._file, used + ROOM_BYTES) and _allocate(self._log, LOG_BYTES))
        if self._is_short and not was_short:
            log.error("event=disk_full path=%s note='nothing can be created until there is space'", self._path)

    def has_space(self) -> bool:
        """Whether objects can be created: always, unless the disk was full at the last write, and is."""
        if not self._is_short:
            return True
        disk = os.statvfs(self._path)
        return disk.f_bavail * disk.f_frsize >= 2 * ROOM_BYTES

    def _scalar(self, pragma: str) -> int:
        return int(self._db.execute(f"PRAGMA {pragma}").fetchone()[0])


def _allocate(file: int, size: int) -> bool:
    """Allocate a file up to a length. SQLite knows from headers and checksums where contents end. False without space."""
    try:
        os.posix_fallocate(file, 0, size)
    except OSError as error:
        log.debug("event=not_allocated bytes=%d error=%s", size, error)
        return False
    return True


class UnknownSchema(Exception):
    """The schema version of the file is not supported."""


def version_of(db: sqlite3.Connection) -> int | None:
    """The schema version; None for a new file. Raises sqlite3.Error if the file is not a database."""
    if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'meta'").fetchone():
        return None
    row = db.execute("SELECT value FROM meta WHERE key = 'schema'").fetchone()
    return int(row[0]) if row else None


def last_revision(db: sqlite3.Connection) -> int:
    """The latest revision recorded in a file."""
    query = "SELECT value FROM meta WHERE key = 'revision' UNION ALL SELECT MAX(revision) FROM current"
    return max((value or 0 for (value,) in db.execute(query)), default=0)


def create_or_check(db: sqlite3.Connection) -> bool:
    """Create the schema in a new file. Returns whether the file had a schema before. Raises UnknownSchema, sqlite3.Error."""
    found = version_of(db)
    if found is None:
        db.executescript(TABLES)
        db.execute("INSERT OR REPLACE INTO meta (key, value) VALUES ('schema', ?)", (SCHEMA_VERSION,))
        return False
    check_version(found)
    return True


def check_version(found: int) -> None:
    """Raise UnknownSchema for another schema than this version's."""
    if found == SCHEMA_VERSION:
        return
    if found > SCHEMA_VERSION:
        advice = "a later version wrote it: use that version"
    else:
        advice = (
            "an earlier version wrote it. To start anew, move the home of the cluster away; what jobs have written is in node/claims "
            "there, and can be copied out"
        )
    raise UnknownSchema(
        f"the database has schema {found}, this version of Trainwright reads schema {SCHEMA_VERSION}: {advice}; nothing was changed"
    )
