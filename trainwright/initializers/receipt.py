"""A receipt in the target folder: what was fetched from where, with which options, and the digest of every file.

It is written last, so a folder with a receipt is whole; a step that finds its own receipt has nothing left to do.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from trainwright.storage.digests import file_digest
from trainwright.storage.transfer import disk_errors, write_bytes

NAME = ".trainwright-receipt.json"
"""Hidden, so that libraries that read the whole folder pass over it."""


class ReceiptFile(BaseModel):
    model_config = ConfigDict(frozen=True)

    path: str
    size: int
    sha256: str


class Receipt(BaseModel):
    """`source` is the URI as it was asked for, `revision` what it stood for then; `options` how it was prepared."""

    model_config = ConfigDict(frozen=True)

    kind: str
    source: str
    revision: str
    options: dict[str, Any] = {}
    files: tuple[ReceiptFile, ...]
    details: dict[str, Any] = {}
    """Numbers worth showing: rows, parameters."""

    @property
    def digest(self) -> str:
        """Digest of the prepared contents, independent of where they came from."""
        files = [[file.path, file.size, file.sha256] for file in self.files]
        return f"sha256:{hashlib.sha256(json.dumps(files).encode()).hexdigest()}"

    def write(self, folder: Path) -> None:
        """Raises StorageError."""
        write_bytes(folder / NAME, self.model_dump_json(indent=1).encode() + b"\n")

    def holds(self, folder: Path) -> bool:
        """Whether the folder still has all files with these sizes and digests. Raises OSError."""
        for file in self.files:
            path = folder / file.path
            if not path.is_file() or path.stat().st_size != file.size or file_digest(path) != file.sha256:
                return False
        return True


def read_receipt(folder: Path) -> Receipt | None:
    """The receipt of a folder, or None where there is none that makes sense. Raises StorageError where it cannot be read."""
    try:
        with disk_errors(folder):
            return Receipt.model_validate_json((folder / NAME).read_bytes()) if (folder / NAME).is_file() else None
    except ValidationError:
        return None


def receipted(folder: Path, paths: list[Path]) -> tuple[ReceiptFile, ...]:
    """The entries for files below `folder`, digested. Raises OSError."""
    return tuple(
        ReceiptFile(path=path.as_posix(), size=(folder / path).stat().st_size, sha256=file_digest(folder / path))
        for path in sorted(paths)
    )
