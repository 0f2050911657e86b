"""Which prepared dataset or model came of which source: small files beside the store, from URI, revision and options to a digest.

An entry is a hint: the folder that it names is checked before it is used, and may be gone.
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

from trainwright.storage.transfer import disk_errors, write_bytes
from trainwright.workspace.layout import Kind, store_path
from trainwright.workspace.receipt import Receipt

log = logging.getLogger(__name__)
INDEX = ".index"


class Entry(BaseModel):
    """`source`, `revision` and `options` as in the receipt; `details` too, since another source may have the same contents."""

    model_config = ConfigDict(frozen=True)

    kind: str
    source: str
    revision: str
    options: dict[str, Any] = {}
    digest: str
    details: dict[str, Any] = {}

    def of(self, receipt: Receipt) -> Receipt:
        """The receipt of the folder, as the one of this source."""
        update = {"source": self.source, "revision": self.revision, "options": self.options, "details": self.details}
        return receipt.model_copy(update=update)


def record_entry(workspace: Path, kind: Kind, receipt: Receipt) -> None:
    """Note what the receipt says of its source. Raises StorageError."""
    entry = Entry(
        kind=kind,
        source=receipt.source,
        revision=receipt.revision,
        options=receipt.options,
        digest=receipt.digest,
        details=receipt.details,
    )
    way = _hex(json.dumps([receipt.revision, receipt.options], sort_keys=True))
    path = store_path(workspace, kind) / INDEX / f"{_hex(receipt.source)}-{way}.json"
    write_bytes(path, entry.model_dump_json(indent=1).encode() + b"\n")


def find_entries(
    workspace: Path, kind: Kind, source: str, revision: str | None, options: dict[str, Any] | None
) -> Iterator[Entry]:
    """The entries of a source, the newest first; `revision` or `options` None takes any. Raises StorageError."""
    for entry in _entries(workspace, kind, f"{_hex(source)}-*.json"):
        if entry.kind != kind or entry.source != source:
            continue
        if revision in (None, entry.revision) and options in (None, entry.options):
            yield entry


def forget_digests(workspace: Path, kind: Kind, digests: set[str]) -> None:
    """Remove the entries that name these digests. Raises StorageError."""
    with disk_errors(store_path(workspace, kind) / INDEX):
        for path in sorted((store_path(workspace, kind) / INDEX).glob("*.json")):
            entry = _read(path)
            if entry is not None and entry.digest in digests:
                path.unlink(missing_ok=True)


def _entries(workspace: Path, kind: Kind, pattern: str) -> Iterator[Entry]:
    folder = store_path(workspace, kind) / INDEX
    with disk_errors(folder):
        dated = [(path.stat().st_mtime_ns, path) for path in folder.glob(pattern) if path.is_file()]
        for _, path in sorted(dated, reverse=True):
            entry = _read(path)
            if entry is not None:
                yield entry


def _read(path: Path) -> Entry | None:
    """None for an entry that makes no sense, or that went meanwhile: it is only a hint."""
    try:
        return Entry.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError:
        log.warning("an entry of the index cannot be read and is ignored path=%s", path)
        return None


def _hex(text: str) -> str:
    return hashlib.sha256(os.fsencode(text)).hexdigest()[:32]
