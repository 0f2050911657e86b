"""A receipt in a prepared folder: what was fetched from where, with which options, and the digest of every file.

It is written last, so a folder with a receipt is whole; a step that finds its own receipt has nothing left to do.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError

from trainwright.storage.digests import file_digest
from trainwright.storage.transfer import disk_errors, write_bytes

NAME = ".trainwright-receipt.json"
"""Hidden, so that libraries that read the whole folder pass over it."""


def _inside(path: str) -> str:
    """Files are linked and copied by these names: none may lead out of the folder."""
    if PurePosixPath(path).as_posix() != path or path.startswith("/") or ".." in path.split("/") or "\0" in path or path == ".":
        raise ValueError(f"the path {path!r} leads out of the folder")
    return path


class ReceiptFile(BaseModel):
    """`path` is relative to the receipt's folder; `sha256` hexadecimal; `size` in bytes."""

    model_config = ConfigDict(frozen=True)

    path: Annotated[str, AfterValidator(_inside)]
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
        return not self.damage(folder)

    def damage(self, folder: Path) -> str:
        """What is wrong with the folder's files, by size and digest; empty when they are whole. Raises OSError."""
        return self.wrong_sizes(folder) or next(filter(None, (_other_contents(folder, file) for file in self.files)), "")

    def wrong_sizes(self, folder: Path) -> str:
        """The first file that is missing or has another size, in words; empty where there is none. Raises OSError."""
        return next(filter(None, (_other_size(folder, file) for file in self.files)), "")


def _other_size(folder: Path, file: ReceiptFile) -> str:
    try:
        found = os.stat(folder / file.path)
    except (FileNotFoundError, NotADirectoryError):
        return f"{file.path} is missing"
    if not stat.S_ISREG(found.st_mode):
        return f"{file.path} is no file"
    return "" if found.st_size == file.size else f"{file.path} has {found.st_size} bytes instead of {file.size}"


def _other_contents(folder: Path, file: ReceiptFile) -> str:
    try:
        return "" if file_digest(folder / file.path) == file.sha256 else f"{file.path} has another SHA-256"
    except (FileNotFoundError, NotADirectoryError):  # another process has just taken the folder away
        return f"{file.path} is missing"


def read_receipt(folder: Path) -> Receipt | None:
    """The receipt of a folder, or None where there is none that makes sense. Raises StorageError where it cannot be read."""
    try:
        with disk_errors(folder), contextlib.suppress(FileNotFoundError):  # another process may take the folder away
            return Receipt.model_validate_json((folder / NAME).read_bytes()) if (folder / NAME).is_file() else None
    except ValidationError:
        pass
    return None


def receipted(folder: Path, paths: list[Path]) -> tuple[ReceiptFile, ...]:
    """The entries for files below `folder`, digested. Raises OSError."""
    return tuple(
        ReceiptFile(path=path.as_posix(), size=(folder / path).stat().st_size, sha256=file_digest(folder / path))
        for path in sorted(paths)
    )
