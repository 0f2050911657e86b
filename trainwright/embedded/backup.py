"""Backs up a cluster's state to one file, whether the cluster runs or not, and restores it."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import orjson

from trainwright.controlplane.apiserver.storage.journal import UnknownSchema, check_version, last_revision, version_of
from trainwright.embedded.home import Home

_BUSY_SECONDS = 30.0
_KEPT_ASIDE = "state.db.before-restore"
_SIDE_FILES = ("-wal", "-shm")


class BackupFailed(Exception):
    """A backup or restore failed; the message has the path and the reason."""


@dataclass(frozen=True)
class Contents:
    """The number of objects in a state, and its last revision."""

    objects: int
    revision: int


def back_up(home: Home, target: Path) -> Contents:
    """Copy the state of a home, running or not, to a new file that only its owner can read; verified before it is put in place.

    The backup contains the Secrets of the cluster but not its credentials. Raises BackupFailed, OSError.
    """
    if not home.database.exists():
        raise BackupFailed(f"no cluster in {home.path}: {home.database.name} does not exist")
    if target.exists():
        raise BackupFailed(f"{target} already exists; choose another path")
    with _new_file(target) as temporary:
        _copy(home.database, temporary)
        contents = verify(temporary)
        try:
            os.link(temporary, target)  # never overwrites a file created meanwhile
        except FileExistsError:
            raise BackupFailed(f"{target} already exists; choose another path") from None
    return contents


def restore(home: Home, source: Path) -> Contents:
    """Replace the state of a stopped home with a backup; the previous state is kept beside it.

    The revision continues from the higher of the two, so that no resource version that a client has seen is reused.
    Raises BackupFailed, HomeTaken, OSError.
    """
    verify(source)
    home.make()
    lock = home.lock()
    try:
        with _new_file(home.database) as temporary:
            _copy(source, temporary)
            if home.database.exists():
                _go_on_from(temporary, _revision_of(home.database))
                _set_aside(home)
            contents = verify(temporary)
            os.replace(temporary, home.database)
    finally:
        os.close(lock)
    return contents


def verify(path: Path) -> Contents:
    """Read a backup completely. Raises BackupFailed if it is not usable."""
    if not path.is_file():
        raise BackupFailed(f"{path}: no such file")
    try:
        with closing(sqlite3.connect(path, timeout=_BUSY_SECONDS)) as db:
            version = version_of(db)
            if version is None:
                raise BackupFailed(f"{path} does not contain a cluster's state")
            check_version(version)
            (found,) = db.execute("PRAGMA integrity_check(1)").fetchone()
            if found != "ok":
                raise BackupFailed(f"{path} is corrupt: {found}")
            objects = 0
            for (data,) in db.execute("SELECT data FROM current"):
                orjson.loads(data)
                objects += 1
            return Contents(objects, last_revision(db))
    except (sqlite3.Error, UnknownSchema, ValueError) as error:
        raise BackupFailed(f"{path} cannot be used: {error}") from error


def _copy(source: Path, target: Path) -> None:
    try:
        with closing(sqlite3.connect(source, timeout=_BUSY_SECONDS)) as db, closing(sqlite3.connect(target)) as copy:
            db.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")  # a single file without -wal and -shm
    except sqlite3.Error as error:
        hint = "; is there enough space?" if "disk" in str(error) else ""
        raise BackupFailed(f"{source} cannot be copied to {target.parent}: {error}{hint}") from error


def _revision_of(database: Path) -> int:
    """The last revision of the state to be replaced; 0 if it cannot be read."""
    try:
        with closing(sqlite3.connect(database, timeout=_BUSY_SECONDS)) as db:
            return last_revision(db)
    except sqlite3.Error:  # damaged, which is why it is replaced
        return 0


def _go_on_from(database: Path, revision: int) -> None:
    with closing(sqlite3.connect(database)) as db, db:
        db.execute("UPDATE meta SET value = MAX(value, ?) WHERE key = 'revision'", (revision,))


def _set_aside(home: Home) -> None:
    for suffix in ("", *_SIDE_FILES):
        present = home.database.with_name(home.database.name + suffix)
        if present.exists():
            os.replace(present, home.path / (_KEPT_ASIDE + suffix))


@contextmanager
def _new_file(beside: Path) -> Iterator[Path]:
    """A temporary file that only its owner can read, removed on exit, with what SQLite kept beside it, unless it was moved."""
    handle, name = tempfile.mkstemp(dir=beside.parent, prefix=f".{beside.name}.")  # mode 0600
    os.close(handle)
    try:
        yield Path(name)
    finally:
        for suffix in ("", *_SIDE_FILES, "-journal"):
            Path(name + suffix).unlink(missing_ok=True)
