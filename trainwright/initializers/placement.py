"""Is the work done already, and how does a prepared folder take its place? The same for datasets and models."""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path
from typing import Any

from trainwright.initializers.errors import InitializerError
from trainwright.storage.locks import exclusive
from trainwright.workspace.receipt import Receipt, read_receipt

log = logging.getLogger(__name__)


def already_there(kind: str, target: Path, source: str, revision: str | None, options: dict[str, Any] | None) -> Receipt | None:
    """The receipt in `target` when it is of this very source and its files are whole; else None.

    `revision` None means that the source cannot be asked from here (a local folder of another machine, a hub out of
    reach): what is there is then taken, if it came from the same URI. `options` None takes what was prepared in any way.
    Raises InitializerError for a target that is none of ours, before anything is fetched; StorageError, OSError.
    """
    check_ours(kind, target)
    receipt = read_receipt(target)
    if receipt is None or receipt.source != source:
        return None
    if options is not None and receipt.options != options:
        return None
    if revision is not None and revision != receipt.revision:
        return None
    if not receipt.holds(target):
        log.warning("files changed since they were prepared target=%s; preparing again", target)
        return None
    log.info("%s is there already target=%s digest=%s", kind, target, receipt.digest)
    return receipt


def take_place(kind: str, prepared: Path, target: Path) -> None:
    """Put a finished folder where `target` is; what we prepared there before goes. Raises as `check_ours`, OSError."""
    old = target.with_name(f".{target.name}.old")
    with exclusive(target.with_name(f".{target.name}.lock")):
        check_ours(kind, target)
        shutil.rmtree(old, ignore_errors=True)
        replaced = target.exists()
        if replaced:
            os.replace(target, old)
        try:
            os.replace(prepared, target)
        except OSError:
            if replaced:
                os.replace(old, target)
            raise
        shutil.rmtree(old, ignore_errors=True)


def check_ours(kind: str, target: Path) -> None:
    """Raises InitializerError for a target with something in it that was not prepared as this kind by Trainwright."""
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return
    receipt = read_receipt(target)
    if receipt is None:
        raise InitializerError(f"{target} exists and was not prepared by Trainwright; choose another folder or remove it")
    if receipt.kind != kind:
        raise InitializerError(f"{target} holds a {receipt.kind} that was prepared; choose another folder for the {kind}")
