"""Reuses or replaces a prepared folder. Shared by datasets and models."""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path
from typing import Any

from trainwright.initializers.errors import InitializerError
from trainwright.storage.atomic_file import exchange
from trainwright.storage.locks import file_lock, lock_path
from trainwright.workspace.receipt import Receipt, read_receipt

log = logging.getLogger(__name__)


def find_existing(kind: str, target: Path, source: str, revision: str | None, options: dict[str, Any] | None) -> Receipt | None:
    """Return the receipt in `target` if source and revision match, it has the options and its files are complete, otherwise None.

    `revision` None means that the source cannot be queried from here (a folder of another machine, an unreachable hub):
    then any revision of the same URI matches. `options` None matches any options.
    Raises InitializerError for a target that was not prepared by Trainwright, before anything is downloaded; StorageError,
    OSError.
    """
    check_replaceable(kind, target)
    receipt = read_receipt(target)
    if receipt is None or receipt.source != source:
        return None
    if not (options or {}).items() <= receipt.options.items():
        return None
    if revision is not None and revision != receipt.revision:
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
        if replaced and exchange(prepared, target):
            return
        if replaced:
            os.replace(target, old)
        try:
            os.replace(prepared, target)
        except OSError:
            if replaced:
                os.replace(old, target)
            raise
        shutil.rmtree(old, ignore_errors=True)


def check_replaceable(kind: str, target: Path) -> None:
    """Raise InitializerError if `target` has contents that Trainwright did not prepare as this kind."""
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return
    receipt = read_receipt(target)
    if receipt is None:
        raise InitializerError(f"{target} exists and was not prepared by Trainwright; choose another folder or remove it")
    if receipt.kind != kind:
        raise InitializerError(f"{target} contains a prepared {receipt.kind}; choose another folder for the {kind}")
