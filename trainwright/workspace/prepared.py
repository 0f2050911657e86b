"""The prepared datasets and models that all runs of a workspace share, each in a folder named by the digest of its contents.

A folder appears by one rename, whole and read-only. Whoever comes second checks the one that is there and drops its own.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainwright.storage.digests import files_below
from trainwright.storage.errors import StorageError
from trainwright.storage.locks import exclusive
from trainwright.storage.transfer import disk_errors
from trainwright.workspace.deletion import hide, remove_tree
from trainwright.workspace.errors import PreparedMismatch
from trainwright.workspace.index import Entry, find_entries, record_entry
from trainwright.workspace.layout import Kind, prepared_path
from trainwright.workspace.receipt import NAME, Receipt, read_receipt

log = logging.getLogger(__name__)
_TAKEN = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR)
_ATTEMPTS = 8
"""Where there are no locks, others may put a damaged folder back in the meantime; each attempt reads all files."""


@dataclass(frozen=True)
class Prepared:
    """A prepared dataset or model: its receipt, and the folder that it lies in."""

    receipt: Receipt
    folder: Path

    @property
    def digest(self) -> str:
        return self.receipt.digest


def publish(kind: Kind, prepared: Path, receipt: Receipt, workspace: Path) -> Path:
    """Put a finished folder with its receipt into the workspace, read-only, and index its source; returns its place.

    `prepared` lies on the disk of the workspace. One that is there already is checked: ours is dropped, or replaces it where
    it is damaged. Raises StorageError, NoSpace.
    """
    target = prepared_path(workspace, kind, receipt.digest)
    with disk_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        _seal(prepared)
        with exclusive(lock_of(target)):
            _into_place(prepared, target, receipt)
        record_entry(workspace, kind, receipt)
    return target


def find_prepared(
    workspace: Path, kind: Kind, source: str, revision: str | None, options: dict[str, Any] | None
) -> Prepared | None:
    """What was prepared from a source before, if it is still whole; every file is read.

    `revision` None means that the source cannot be asked: what came from the same URI is taken. `options` None takes what
    was prepared in any way. Raises StorageError.
    """
    for entry in find_entries(workspace, kind, source, revision, options):
        found = _whole(workspace, kind, entry)
        if found is not None:
            log.info("%s is there already folder=%s digest=%s", kind, found.folder, found.digest)
            return found
    return None


def verify_prepared(kind: Kind, folder: Path, digest: str) -> Receipt:
    """The receipt in `folder`, whose digest must be `digest`, and whose files must all be whole: every file is read.

    Raises PreparedMismatch naming both digests and the folder, StorageError.
    """
    receipt = _expected(kind, folder, digest)
    with disk_errors(folder):
        _refuse_damage(kind, folder, digest, receipt.damage(folder))
    return receipt


def check_prepared(kind: Kind, folder: Path, digest: str) -> Receipt:
    """As `verify_prepared`, but files are only looked at: each must be there with its size."""
    receipt = _expected(kind, folder, digest)
    with disk_errors(folder):
        _refuse_damage(kind, folder, digest, receipt.wrong_sizes(folder))
    return receipt


def touch_prepared(folder: Path) -> None:
    """Note that a prepared folder is in use: `prune_runs` spares it for a while. Read-only mounts and others' folders stay."""
    with contextlib.suppress(OSError):
        os.utime(folder)


def lock_of(target: Path) -> Path:
    """The lock file of a prepared folder; whoever puts one in its place or takes it away holds it."""
    return target.with_name(f".{target.name}.lock")


def _whole(workspace: Path, kind: Kind, entry: Entry) -> Prepared | None:
    try:
        folder = prepared_path(workspace, kind, entry.digest)
    except ValueError:
        log.warning("an entry of the index names no digest source=%s", entry.source)
        return None
    if folder.is_symlink() or not folder.is_dir():
        return None
    with disk_errors(folder):
        with exclusive(lock_of(folder)):
            touch_prepared(folder)
        receipt = read_receipt(folder)
        if receipt is None or receipt.digest != entry.digest or not receipt.holds(folder):
            log.warning("files changed since they were prepared folder=%s; preparing again", folder)
            return None
    return Prepared(entry.of(receipt), folder)


def _into_place(prepared: Path, target: Path, receipt: Receipt) -> None:
    for _ in range(_ATTEMPTS):
        try:
            os.rename(prepared, target)
        except OSError as error:
            if error.errno not in _TAKEN:
                raise
        else:
            _sync(target.parent)
            touch_prepared(target)
            return
        damage = _damage(target, receipt)
        if not damage:
            touch_prepared(target)
            log.info("another run has prepared the same folder=%s", target)
            return
        log.warning("a prepared folder is damaged and is replaced folder=%s damage=%s", target, damage)
        _set_aside(target, receipt)
    raise StorageError(f"{target}: others put a damaged folder there at every attempt; look what else writes to the workspace")


def _damage(target: Path, receipt: Receipt) -> str:
    if target.is_symlink() or not target.is_dir():
        return "it is no folder"
    found = read_receipt(target)
    if found is None or found.digest != receipt.digest:
        return f"{NAME} is missing or of other contents"
    return receipt.damage(target)


def _set_aside(target: Path, receipt: Receipt) -> None:
    """Take the damaged folder away; one that another process has just replaced (there may be no locks) goes back."""
    try:
        hidden = hide(target)
    except FileNotFoundError:
        return
    if not _damage(hidden, receipt):
        with contextlib.suppress(OSError):  # a third one is there by now
            os.rename(hidden, target)
            return
    remove_tree(hidden)


def _seal(folder: Path) -> None:
    """Nobody writes into files that others train on. Contents and names are on the disk before the folder has its own name."""
    for path in files_below(folder):
        if not (folder / path).is_symlink():
            with contextlib.suppress(OSError):  # begun by another user, or a file system without modes
                os.chmod(folder / path, 0o444)
            _sync(folder / path)
    for place, _, _ in os.walk(folder):
        _sync(Path(place))


def _sync(path: Path) -> None:
    """Make it survive a power cut. Some network file systems cannot do that for folders."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _expected(kind: Kind, folder: Path, digest: str) -> Receipt:
    receipt = read_receipt(folder)
    if receipt is None:
        raise PreparedMismatch(
            f"{folder} should hold the prepared {kind} {digest}, and has no {NAME} that can be read: prepare the {kind} again"
        )
    if receipt.kind != kind:
        raise PreparedMismatch(f"{folder} should hold the prepared {kind} {digest}, and holds a {receipt.kind}, {receipt.digest}")
    if receipt.digest != digest:
        raise PreparedMismatch(
            f"{folder} should hold the prepared {kind} {digest}, and holds {receipt.digest}: "
            f"prepare the {kind} again, or submit the job with the digest of what is there"
        )
    return receipt


def _refuse_damage(kind: Kind, folder: Path, digest: str, damage: str) -> None:
    if damage:
        raise PreparedMismatch(f"{folder} holds the prepared {kind} {digest}, damaged: {damage}; prepare the {kind} again")
