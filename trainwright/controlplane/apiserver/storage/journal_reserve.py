"""Keeps room for the journal: on a full disk pods can still be deleted and end, which is what makes room again.

The write-ahead log is written from its beginning again after each checkpoint, so its room is allocated once. The database file is
kept longer than its contents, so that what the log holds can always be moved into it.
"""

from __future__ import annotations

import logging
import os
import sqlite3

LOG_BYTES = 6 * 1024 * 1024
"""A checkpoint begins after 1,000 pages of 4 KiB, at the end of a transaction."""
ROOM_BYTES, LEAST_BYTES = 2 * 1024 * 1024, 1024 * 1024
"""What a file gets beyond its contents, and when it gets it again: a checkpoint cuts it off."""
log = logging.getLogger(__name__)


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
            return
        used = self._scalar("page_count") * self._scalar("page_size")
        has_room = os.fstat(self._file).st_size >= used + LEAST_BYTES
        if (has_room and not self._is_short) or not self.has_space():
            return
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
