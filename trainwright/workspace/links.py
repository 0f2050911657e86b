"""The same files in a second folder of one volume: hard links where there can be some, copies elsewhere."""

from __future__ import annotations

import os
from pathlib import Path

from trainwright.storage.errors import Damaged
from trainwright.storage.store import StoredFile
from trainwright.storage.transfer import check_space, copy_file
from trainwright.workspace.receipt import Receipt


def link_prepared(receipt: Receipt, source: Path, target: Path) -> None:
    """Bring the files of a receipt from the prepared folder `source` into the folder `target`, and the receipt itself, last.

    Raises StorageError, NoSpace, Damaged (a copy that is not what the receipt says), OSError (a file that is not there).
    """
    for file in receipt.files:
        place = target / file.path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.unlink(missing_ok=True)
        _link_or_copy(source / file.path, place, StoredFile(file.size, file.sha256))
    receipt.write(target)


def _link_or_copy(source: Path, target: Path, expected: StoredFile) -> None:
    try:
        # A link is resolved: on the other side of a mount it may lead elsewhere.
        os.link(source.resolve(strict=True), target)
    except FileNotFoundError:
        raise
    except OSError:  # no hard links here (SMB, object-store mounts), or not for files of another user
        check_space(target.parent, expected.size)
        if copy_file(source, target) != expected:
            raise Damaged(f"{source} changed since it was prepared: its size or SHA-256 is not that of the receipt") from None
