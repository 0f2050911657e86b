"""Folders that tools make in the workspace, named by what they contain: whole, with a receipt, and never changed afterwards."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainwright.storage.atomic_file import sync_files
from trainwright.storage.errors import StorageError
from trainwright.storage.locks import file_lock, lock_path
from trainwright.storage.plain_files import folder_files
from trainwright.storage.transfer import disk_errors
from trainwright.workspace.deletion import mark_deleted, remove_tree
from trainwright.workspace.receipt import NAME, Receipt, digest_files, read_receipt

_TAKEN = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR)


def receipt_of(
    folder: Path, kind: str, *, source: str, revision: str, options: Mapping[str, Any], details: Mapping[str, Any]
) -> Receipt:
    """Return the receipt for the files of a folder. Reads every file. Raises UnsafeFile for links and special files, StorageError."""
    with disk_errors(folder):
        found = folder_files(folder)
        found.require_none_refused(folder)
        files = digest_files(folder, [path for path in found.files if path.name != NAME])
    return Receipt(kind=kind, source=source, revision=revision, options=dict(options), files=files, details=dict(details))


def find_folder(target: Path) -> Receipt | None:
    """Return the receipt of a folder that is there as it was made; a changed one is removed. Reads every file. Raises StorageError."""
    with disk_errors(target), file_lock(lock_path(target)):
        if not target.exists():
            return None
        receipt = read_receipt(target)
        if receipt is not None and receipt.matches(target):
            return receipt
        remove_tree(mark_deleted(target))
        return None


def publish_folder(prepared: Path, target: Path, receipt: Receipt) -> Receipt:
    """Write the receipt and move the folder to its name by one rename. Returns the receipt of what is there then.

    If another process was first, its folder stays. Raises StorageError.
    """
    receipt.write(prepared)
    with disk_errors(target), file_lock(lock_path(target)):
        for file in receipt.files:
            os.chmod(prepared / file.path, 0o444)
        sync_files(prepared / file.path for file in receipt.files)
        try:
            os.rename(prepared, target)
        except OSError as error:  # another process was faster
            if error.errno not in _TAKEN:
                raise
            there = read_receipt(target)
            if there is None:
                raise StorageError(f"{target} exists and was not made by Trainwright; remove it") from error
            return there
    return receipt
