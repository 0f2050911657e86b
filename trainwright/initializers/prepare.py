"""Shared steps of preparing a dataset or a model, in a given folder or in the store of a workspace.

Reuse an existing result; otherwise download and prepare in a scratch folder beside the target, then rename it into place.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainwright.initializers.errors import InitializerError
from trainwright.initializers.fetched import FileFilter
from trainwright.initializers.source import resolve_revision
from trainwright.storage.atomic_file import exchange
from trainwright.storage.claims import mounted
from trainwright.storage.locks import file_lock, lock_path
from trainwright.storage.scratch import scratch_folder
from trainwright.storage.transfer import disk_errors
from trainwright.storage.uri import StorageUri
from trainwright.text.hub_names import with_scheme
from trainwright.workspace.layout import Kind, store_path
from trainwright.workspace.prepared import Prepared, find_prepared, publish
from trainwright.workspace.receipt import Receipt, read_receipt

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Preparation:
    """A dataset or model to prepare. A result is reused if it has the `options`, whatever others it has."""

    kind: Kind
    source: StorageUri
    uri: str
    """The URI as `parse_source` returns it; recorded in the receipt."""
    file_filter: FileFilter
    options: dict[str, Any]
    make: Callable[[StorageUri, str | None, Path], tuple[Receipt, Path]]
    """Downloads and prepares a revision in a scratch folder; returns the receipt and the prepared folder inside it."""


def parse_source(text: str) -> tuple[StorageUri, str]:
    """Return the source that a user names, and the form of it for receipts and messages: as given, but without a query.

    A path on a claim is that where the claim is mounted. Raises BadUri, StorageError for a claim that is not.
    """
    source = StorageUri.parse(with_scheme(text.strip()))
    return mounted(source), str(source) if source.is_web else text


def prepare_folder(preparation: Preparation, target: Path) -> Receipt:
    """Prepare in the folder `target`, or reuse its contents. Raises InitializerError, StorageError, NoSpace."""
    source = preparation.source
    with disk_errors(target):
        revision = resolve_revision(source, preparation.file_filter)
        receipt = find_existing(preparation.kind, target, preparation.uri, revision, preparation.options)
        if receipt is not None:  # prepared by an earlier try
            _warn_if_unchecked(source, revision, receipt)
            return receipt
        with scratch_folder(target, f"{preparation.kind} {preparation.uri} {revision}") as scratch:
            receipt, prepared = preparation.make(source, revision, scratch)
            swap_into_place(preparation.kind, prepared, target)
            return receipt


def prepare_in_workspace(preparation: Preparation, workspace: Path) -> Prepared:
    """Prepare in the shared store of a workspace, or reuse its contents. Raises InitializerError, StorageError, NoSpace."""
    source = preparation.source
    with disk_errors(workspace):
        revision = resolve_revision(source, preparation.file_filter)
        found = find_prepared(workspace, preparation.kind, preparation.uri, revision, preparation.options)
        if found is not None:  # prepared for another run
            _warn_if_unchecked(source, revision, found.receipt)
            return found
        # One scratch folder per source, so that a download of one source is not removed by another.
        scratch_target = (
            store_path(workspace, preparation.kind) / hashlib.sha256(str(source).encode("utf-8", "surrogateescape")).hexdigest()
        )
        with scratch_folder(scratch_target, f"{preparation.kind} {source} {revision}") as scratch:
            receipt, prepared = preparation.make(source, revision, scratch)
            return Prepared(receipt, publish(preparation.kind, prepared, receipt, workspace))


def _warn_if_unchecked(source: StorageUri, revision: str | None, receipt: Receipt) -> None:
    """Say that a result is reused although its source, which may have changed since, could not be queried."""
    if revision is None:
        log.warning("event=reused_unchecked source=%s revision=%s", source, receipt.revision)


def find_existing(kind: str, target: Path, source: str, revision: str | None, options: dict[str, Any] | None) -> Receipt | None:
    """Return the receipt in `target` if source and revision match, it has the options and its files are complete, otherwise None.

    `revision` None means that the source cannot be queried from here (a folder of another machine, an unreachable hub):
    then any revision of the same URI matches. `options` None matches any options.
    Raises InitializerError for a target that was not prepared by Trainwright, before anything is downloaded; StorageError,
    OSError.
    """
    check_replaceable(kind, target)
    receipt = read_receipt(target)
    if receipt is None or receipt.source != source:  # prepared from elsewhere, or not at all
        return None
    if not (options or {}).items() <= receipt.options.items():  # prepared otherwise
        return None
    if revision is not None and revision != receipt.revision:  # the source has changed
        return None
    if not receipt.matches(target):
        log.warning("prepared files have changed, preparing again target=%s", target)
        return None
    log.info("%s exists already target=%s digest=%s", kind, target, receipt.digest)
    return receipt


def swap_into_place(kind: str, prepared: Path, target: Path) -> None:
    """Move a prepared folder to `target`, replacing an earlier result, which is then at `prepared` or removed.

    There is always a whole folder at `target`, except for a moment on systems that cannot exchange two folders.
    Raises the errors of `check_replaceable`, OSError.
    """
    old = target.with_name(f".{target.name}.old")
    with file_lock(lock_path(target)):
        check_replaceable(kind, target)
        shutil.rmtree(old, ignore_errors=True)
        replaced = target.exists()
        if replaced and exchange(prepared, target):  # at no moment is the target missing
            return
        if replaced:
            os.replace(target, old)
        try:
            os.replace(prepared, target)
        except OSError:  # the earlier result stays
            if replaced:
                os.replace(old, target)
            raise
        shutil.rmtree(old, ignore_errors=True)


def check_replaceable(kind: str, target: Path) -> None:
    """Raise InitializerError if `target` has contents that Trainwright did not prepare as this kind."""
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):  # nothing would be lost
        return
    receipt = read_receipt(target)
    if receipt is None:
        raise InitializerError(f"{target} exists and was not prepared by Trainwright; choose another folder or remove it")
    if receipt.kind != kind:
        raise InitializerError(f"{target} contains a prepared {receipt.kind}; choose another folder for the {kind}")
