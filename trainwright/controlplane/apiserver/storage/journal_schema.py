"""The schema of the journal file. A file with another schema is rejected and left as it is.

The number only goes up, also when a layout is taken back: commits before this rule wrote 1 and 2. From release 0.1.0 on, files of
earlier releases are converted.
"""

from __future__ import annotations

import sqlite3

SCHEMA_VERSION = 3
TABLES = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS current (
  resource TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL, revision INTEGER NOT NULL, data BLOB NOT NULL,
  PRIMARY KEY (resource, namespace, name));
"""


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
