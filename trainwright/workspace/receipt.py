"""The receipt in a prepared folder: source, revision, options, and the digest of every file.

It is written last, so a folder with a receipt is complete, and a step that finds a matching receipt has nothing to do.
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
from trainwright.storage.errors import UnsafeFile
from trainwright.storage.plain_files import read_plain
from trainwright.storage.transfer import disk_errors, write_bytes

NAME = ".trainwright-receipt.json"
"""Hidden, so that libraries that read the whole folder skip it."""
_MAX_BYTES = 256 * 1024 * 1024
"""More than a million files."""


def _inside(path: str) -> str:
    """Reject paths outside of the folder, since files are linked and copied by these names."""
    if PurePosixPath(path).as_posix() != path or path.startswith("/") or ".." in path.split("/") or "\0" in path or path == ".":
        raise ValueError(f"the path {path!r} is outside of the folder")
    return path


class ReceiptFile(BaseModel):
    """`path` is relative to the receipt's folder, `size` is in bytes, `sha256` is hexadecimal."""

    model_config = ConfigDict(frozen=True)

    path: Annotated[str, AfterValidator(_inside)]
    size: int
    sha256: str


class Receipt(BaseModel):
    """`source` is the requested URI, `revision` its revision at that time, `options` how it was prepared."""

    model_config = ConfigDict(frozen=True)

    kind: str
    source: str
    revision: str
    options: dict[str, Any] = {}
    files: tuple[ReceiptFile, ...]
    details: dict[str, Any] = {}
    """Numbers to display: rows, parameters."""

    @property
    def digest(self) -> str:
        """The digest of the prepared contents, independent of their source."""
        files = [[file.path, file.size, file.sha256] for file in self.files]
        return f"sha256:{hashlib.sha256(json.dumps(files).encode()).hexdigest()}"

    def write(self, folder: Path) -> None:
        """Write the receipt to the folder. Raises StorageError."""
        write_bytes(folder / NAME, self.model_dump_json(indent=1).encode() + b"\n")

    def matches(self, folder: Path) -> bool:
        """Whether the folder has all files with the recorded sizes and digests. Raises OSError."""
        return not self.find_mismatch(folder)

    def find_mismatch(self, folder: Path) -> str:
        """Describe the first file whose size or digest differs, or return an empty string. Raises OSError."""
        return self.find_size_mismatch(folder) or next(filter(None, (_content_mismatch(folder, file) for file in self.files)), "")

    def find_size_mismatch(self, folder: Path) -> str:
        """Describe the first file that is missing or has a different size, or return an empty string. Raises OSError."""
        return next(filter(None, (_size_mismatch(folder, file) for file in self.files)), "")


def _size_mismatch(folder: Path, file: ReceiptFile) -> str:
    try:
        found = os.stat(folder / file.path)
    except (FileNotFoundError, NotADirectoryError):
        return f"{file.path} is missing"
    if not stat.S_ISREG(found.st_mode):
        return f"{file.path} is not a regular file"
    return "" if found.st_size == file.size else f"{file.path} has {found.st_size} bytes instead of {file.size}"


def _content_mismatch(folder: Path, file: ReceiptFile) -> str:
    try:
        return "" if file_digest(folder / file.path) == file.sha256 else f"{file.path} has a different SHA-256"
    except (FileNotFoundError, NotADirectoryError):  # another process has just removed the folder
        return f"{file.path} is missing"


def read_receipt(folder: Path) -> Receipt | None:
    """Return the receipt of a folder, or None if it is missing or invalid. Raises StorageError if it cannot be read."""
    try:
        with disk_errors(folder), contextlib.suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return Receipt.model_validate_json(read_plain(folder / NAME, _MAX_BYTES, folder))
    except (ValidationError, UnsafeFile):
        pass
    return None


def digest_files(folder: Path, paths: list[Path]) -> tuple[ReceiptFile, ...]:
    """Return receipt entries with digests for files below `folder`. Raises OSError."""
    return tuple(
        ReceiptFile(path=path.as_posix(), size=(folder / path).stat().st_size, sha256=file_digest(folder / path))
        for path in sorted(paths)
    )
