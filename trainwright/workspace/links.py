"""Links prepared files into a second folder of the same volume: hard links if supported, otherwise copies."""

from __future__ import annotations

import os
from pathlib import Path

from trainwright.storage.errors import ChecksumMismatch
from trainwright.storage.store import StoredFile
from trainwright.storage.transfer import check_space, copy_file
from trainwright.workspace.receipt import Receipt


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
