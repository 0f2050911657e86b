"""The index of prepared datasets and models: small files in the store that map URI, revision and options to a digest.

An entry is only a hint. The folder that it names may be missing, and is verified before it is used.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from trainwright.storage.errors import UnsafeFile
from trainwright.storage.plain_files import read_plain
from trainwright.storage.transfer import disk_errors, write_bytes
from trainwright.workspace.layout import Kind, index_path
from trainwright.workspace.receipt import Receipt

log = logging.getLogger(__name__)
_MAX_BYTES = 1024 * 1024


class Entry(BaseModel):
    """The fields of a receipt that depend on the source; several sources may have the same contents and so the same folder."""

    model_config = ConfigDict(frozen=True)

    kind: str
    source: str
    revision: str
    options: dict[str, Any] = {}
    digest: str
    details: dict[str, Any] = {}

    def apply_to(self, receipt: Receipt) -> Receipt:
        """Return the folder's receipt with the fields of this source."""
        update = {"source": self.source, "revision": self.revision, "options": self.options, "details": self.details}
        return receipt.model_copy(update=update)


def record_entry(workspace: Path, kind: Kind, receipt: Receipt) -> None:
    """Add the receipt to the index. Raises StorageError."""
    entry = Entry(
        kind=kind,
        source=receipt.source,
        revision=receipt.revision,
        options=receipt.options,
        digest=receipt.digest,
        details=receipt.details,
    )
    variant = _hex(json.dumps([receipt.revision, receipt.options], sort_keys=True))
    path = index_path(workspace, kind) / f"{_hex(receipt.source)}-{variant}.json"
    write_bytes(path, entry.model_dump_json(indent=1).encode() + b"\n")


def find_entries(
    workspace: Path, kind: Kind, source: str, revision: str | None, options: dict[str, Any] | None
) -> Iterator[Entry]:
    """Yield the entries of a source, newest first, that have the `options`; None matches any revision or options.

    Raises StorageError.
    """
    for entry in _entries(workspace, kind, f"{_hex(source)}-*.json"):
        if entry.kind != kind or entry.source != source:
            continue
        if revision in (None, entry.revision) and (options or {}).items() <= entry.options.items():
            yield entry


def remove_entries(workspace: Path, kind: Kind, digests: set[str]) -> None:
    """Remove the entries with these digests. Raises StorageError."""
    with disk_errors(index_path(workspace, kind)):
        for path in sorted(index_path(workspace, kind).glob("*.json")):
            entry = _read(path)
            if entry is not None and entry.digest in digests:
                path.unlink(missing_ok=True)


def _entries(workspace: Path, kind: Kind, pattern: str) -> Iterator[Entry]:
    folder = index_path(workspace, kind)
    with disk_errors(folder):
        dated = [(_changed_at(path), path) for path in folder.glob(pattern) if path.is_file()]
        for _, path in sorted(dated, reverse=True):
            entry = _read(path)
            if entry is not None:
                yield entry


def _changed_at(path: Path) -> int:
    """The time of the last change in nanoseconds; 0 if another run has removed the entry meanwhile."""
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def _read(path: Path) -> Entry | None:
    """Return None for an invalid or deleted entry, since entries are only hints."""
    try:
        return Entry.model_validate_json(read_plain(path, _MAX_BYTES))
    except FileNotFoundError:
        return None
    except (ValidationError, UnsafeFile):
        log.warning("an index entry is invalid and is ignored path=%s", path)
        return None


def _hex(text: str) -> str:
    return hashlib.sha256(os.fsencode(text)).hexdigest()[:32]
