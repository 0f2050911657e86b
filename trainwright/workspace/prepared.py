"""The store of prepared datasets and models, shared by all runs of a workspace, in folders named by content digest.

A folder is complete and read-only, and is published by one rename. A second publisher verifies it and discards its own. Small files
in the store map URI, revision and options to a digest. Such an entry is only a hint: the folder that it names may be missing, and
is verified before it is used.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from trainwright.storage.errors import StorageError, UnsafeFile
from trainwright.storage.locks import file_lock, lock_path
from trainwright.storage.plain_files import files_below, read_plain
from trainwright.storage.transfer import disk_errors, write_bytes
from trainwright.workspace.deletion import mark_deleted, remove_tree
from trainwright.workspace.layout import Kind, PreparedMismatch, index_path, prepared_path
from trainwright.workspace.receipt import NAME, Receipt, read_receipt

log = logging.getLogger(__name__)
_TARGET_EXISTS = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR)
_ATTEMPTS = 8
"""Without locks, another process may write a corrupt folder again meanwhile. Each attempt reads all files."""
_MAX_BYTES = 1024 * 1024


@dataclass(frozen=True)
class Prepared:
    """A prepared dataset or model: its receipt and its folder."""

    receipt: Receipt
    folder: Path

    @property
    def digest(self) -> str:
        return self.receipt.digest


def publish(kind: Kind, prepared: Path, receipt: Receipt, workspace: Path) -> Path:
    """Move a prepared folder with its receipt into the store, read-only, and index its source. Returns the new path.

    `prepared` must be on the disk of the workspace. An existing folder is verified, and replaced only if it is corrupt.
    Raises StorageError, NoSpace.
    """
    target = prepared_path(workspace, kind, receipt.digest)
    with disk_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        _make_read_only(prepared)
        with file_lock(lock_path(target)):
            _move_into_place(prepared, target, receipt)
        record_entry(workspace, kind, receipt)
    return target


def find_prepared(
    workspace: Path, kind: Kind, source: str, revision: str | None, options: dict[str, Any] | None
) -> Prepared | None:
    """Return what was prepared from a source before, if it is intact. Reads every file.

    `revision` None means that the source cannot be queried: then any revision of the URI matches. `options` are those that it must
    have; None matches any. Raises StorageError.
    """
    for entry in find_entries(workspace, kind, source, revision, options):
        found = _find_intact(workspace, kind, entry)
        if found is not None:
            log.info("%s exists already folder=%s digest=%s", kind, found.folder, found.digest)
            return found
    return None


def verify_prepared(kind: Kind, folder: Path, digest: str) -> Receipt:
    """Return the receipt in `folder` after checking that it has this digest and that all files match. Reads every file.

    Raises PreparedMismatch, which names both digests and the folder, StorageError.
    """
    receipt = _read_expected(kind, folder, digest)
    with disk_errors(folder):
        _raise_if_corrupt(kind, folder, digest, receipt.find_mismatch(folder))
    return receipt


def check_prepared(kind: Kind, folder: Path, digest: str) -> Receipt:
    """Like `verify_prepared`, but checks only existence and size of the files."""
    receipt = _read_expected(kind, folder, digest)
    with disk_errors(folder):
        _raise_if_corrupt(kind, folder, digest, receipt.find_size_mismatch(folder))
    return receipt


def touch_prepared(folder: Path) -> None:
    """Mark a prepared folder as in use, so that `prune_runs` keeps it for a while. Ignored without write permission."""
    with contextlib.suppress(OSError):
        os.utime(folder)


def _find_intact(workspace: Path, kind: Kind, entry: Entry) -> Prepared | None:
    try:
        folder = prepared_path(workspace, kind, entry.digest)
    except ValueError:
        log.warning("an index entry has an invalid digest source=%s", entry.source)
        return None
    if folder.is_symlink() or not folder.is_dir():
        return None
    with disk_errors(folder):
        with file_lock(lock_path(folder)):
            touch_prepared(folder)
        receipt = read_receipt(folder)
        if receipt is None or receipt.digest != entry.digest or not receipt.matches(folder):
            log.warning("prepared files have changed, preparing again folder=%s", folder)
            return None
    return Prepared(entry.apply_to(receipt), folder)


def _move_into_place(prepared: Path, target: Path, receipt: Receipt) -> None:
    for _ in range(_ATTEMPTS):
        try:
            os.rename(prepared, target)
        except OSError as error:
            if error.errno not in _TARGET_EXISTS:
                raise
        else:
            _sync(target.parent)
            touch_prepared(target)
            return
        mismatch = _find_mismatch(target, receipt)
        if not mismatch:
            touch_prepared(target)
            log.info("another run has prepared the same data folder=%s", target)
            return
        log.warning("a prepared folder is corrupt and is replaced folder=%s reason=%s", target, mismatch)
        _discard(target, receipt)
    raise StorageError(
        f"{target}: another process wrote a corrupt folder at every attempt; check what else writes to the workspace"
    )


def _find_mismatch(target: Path, receipt: Receipt) -> str:
    if target.is_symlink() or not target.is_dir():
        return "it is not a folder"
    found = read_receipt(target)
    if found is None or found.digest != receipt.digest:
        return f"{NAME} is missing or has a different digest"
    return receipt.find_mismatch(target)


def _discard(target: Path, receipt: Receipt) -> None:
    """Remove a corrupt folder, but restore it if another process has just replaced it (there may be no locks)."""
    try:
        hidden = mark_deleted(target)
    except FileNotFoundError:
        return
    if not _find_mismatch(hidden, receipt):
        with contextlib.suppress(OSError):  # a third process has published meanwhile
            os.rename(hidden, target)
            return
    remove_tree(hidden)


def _make_read_only(folder: Path) -> None:
    """Make the files read-only, since other runs share them, and sync contents and names to disk before publishing."""
    for path in files_below(folder):
        if not (folder / path).is_symlink():
            with contextlib.suppress(OSError):  # owned by another user, or a file system without modes
                os.chmod(folder / path, 0o444)
            _sync(folder / path)
    for parent, _, _ in os.walk(folder):
        _sync(Path(parent))


def _sync(path: Path) -> None:
    """Sync to disk. Some network file systems cannot sync folders."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _read_expected(kind: Kind, folder: Path, digest: str) -> Receipt:
    receipt = read_receipt(folder)
    if receipt is None:
        raise PreparedMismatch(
            f"{folder}: expected the prepared {kind} {digest}, but {NAME} is missing or invalid; prepare the {kind} again"
        )
    if receipt.kind != kind:
        raise PreparedMismatch(f"{folder}: expected the prepared {kind} {digest}, found a {receipt.kind}, {receipt.digest}")
    if receipt.digest != digest:
        raise PreparedMismatch(
            f"{folder}: expected the prepared {kind} {digest}, found {receipt.digest}; "
            f"prepare the {kind} again, or submit the job with the digest that was found"
        )
    return receipt


def _raise_if_corrupt(kind: Kind, folder: Path, digest: str, mismatch: str) -> None:
    if mismatch:
        raise PreparedMismatch(f"{folder}: the prepared {kind} {digest} is corrupt: {mismatch}; prepare the {kind} again")


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
