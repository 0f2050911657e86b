"""The schema of the journal file. Older schemas are migrated in one transaction, newer ones are rejected."""

from __future__ import annotations

import sqlite3

SCHEMA_VERSION = 2
TABLES = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS current (
  resource TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL, revision INTEGER NOT NULL, data BLOB NOT NULL,
  PRIMARY KEY (resource, namespace, name));
"""
STEPS: dict[int, tuple[str, ...]] = {
    1: (  # drops the unused log of revisions
        "INSERT OR REPLACE INTO meta (key, value) SELECT 'revision', COALESCE(MAX(value), 0) FROM ("
        "SELECT value FROM meta WHERE key = 'revision' UNION ALL SELECT MAX(revision) FROM log)",
        "DROP TABLE log",
    ),
}
"""Migration statements from each released schema version to the next."""


class UnknownSchema(Exception):
    """The schema version of the file is not supported."""


def version_of(db: sqlite3.Connection) -> int | None:
    """The schema version; None for a new file. Raises sqlite3.Error if the file is not a database."""
    if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'meta'").fetchone():
        return None
    row = db.execute("SELECT value FROM meta WHERE key = 'schema'").fetchone()
    return int(row[0]) if row else None


def last_revision(db: sqlite3.Connection) -> int:
    """The latest revision recorded in a file of this or an earlier schema."""
    parts = ["SELECT value FROM meta WHERE key = 'revision'", "SELECT MAX(revision) FROM current"]
    if db.execute("SELECT 1 FROM sqlite_master WHERE name = 'log'").fetchone():
        parts.append("SELECT MAX(revision) FROM log")
    return max((value or 0 for (value,) in db.execute(" UNION ALL ".join(parts))), default=0)


def bring_up_to_date(db: sqlite3.Connection) -> bool:
    """Create the schema, or migrate an older one atomically. Returns whether the file had a schema before.

    `db` must be in autocommit mode. Raises UnknownSchema, sqlite3.Error.
    """
    found = version_of(db)
    if found is None:
        db.executescript(TABLES)
        db.execute("INSERT OR REPLACE INTO meta (key, value) VALUES ('schema', ?)", (SCHEMA_VERSION,))
        return False
    if found > SCHEMA_VERSION:
        raise UnknownSchema(
            f"the cluster's database has schema {found}, this version of Trainwright reads up to {SCHEMA_VERSION}: "
            "use the version that wrote it, or a newer one; the database was not changed"
        )
    missing = [version for version in range(found, SCHEMA_VERSION) if version not in STEPS]
    if missing:
        raise UnknownSchema(
            f"the cluster's database has schema {found}, which this version of Trainwright cannot migrate to {SCHEMA_VERSION}"
        )
    if found < SCHEMA_VERSION:
        _change(db, [statement for version in range(found, SCHEMA_VERSION) for statement in STEPS[version]])
    return True


def _change(db: sqlite3.Connection, statements: list[str]) -> None:
    db.execute("BEGIN EXCLUSIVE")
    try:
        for statement in statements:
            db.execute(statement)
        db.execute("UPDATE meta SET value = ? WHERE key = 'schema'", (SCHEMA_VERSION,))
        db.execute("COMMIT")
    except sqlite3.Error:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
