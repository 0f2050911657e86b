"""The receipt in a prepared folder: source, revision, options, and the digest of every file.

It is written last, so a folder with a receipt is complete, and a step that finds a matching receipt has nothing to do. Its files
can be linked into a second folder of the same volume.
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

from trainwright.storage.errors import ChecksumMismatch, UnsafeFile
from trainwright.storage.plain_files import file_digest, read_plain
from trainwright.storage.store import StoredFile
from trainwright.storage.transfer import check_space, copy_file, disk_errors, write_bytes

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


def link_prepared(receipt: Receipt, source: Path, target: Path) -> None:
    """Link or copy the files of a receipt from the prepared folder `source` to `target`, and write the receipt last.

    Raises StorageError, NoSpace, ChecksumMismatch (a copy that differs from the receipt), OSError (a missing file).
    """
    for file in receipt.files:
        target_path = target / file.path
        target_path.parent.mkdir(parents=True, exist_ok=True)
        target_path.unlink(missing_ok=True)
        _link_or_copy(source / file.path, target_path, StoredFile(file.size, file.sha256))
    receipt.write(target)


def _link_or_copy(source: Path, target: Path, expected: StoredFile) -> None:
    try:
        # Links are resolved, since they may point elsewhere on the other side of a mount.
        os.link(source.resolve(strict=True), target)
    except FileNotFoundError:
        raise
    except OSError:  # no hard links (SMB, object-store mounts), or not for files of another user
        check_space(target.parent, expected.size)
        copied = copy_file(source, target)
        if (copied.size, copied.sha256) != (expected.size, expected.sha256):
            raise ChecksumMismatch(
                f"{source} has changed since it was prepared: its size or SHA-256 differs from the receipt"
            ) from None
