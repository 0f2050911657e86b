"""Imports a dataset or model that an earlier version prepared in `W/dataset` or `W/model` into the shared store of workspace W."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

from trainwright.storage.scratch import scratch_folder
from trainwright.storage.transfer import disk_errors
from trainwright.workspace.layout import Kind, store_path
from trainwright.workspace.links import link_prepared
from trainwright.workspace.prepared import Prepared, publish
from trainwright.workspace.receipt import read_receipt

log = logging.getLogger(__name__)


def import_legacy(
    workspace: Path, kind: Kind, sources: tuple[str, ...], revision: str | None, options: dict[str, Any] | None
) -> Prepared | None:
    """Import the dataset or model in the workspace's root folder; returns None if it does not match.

    `sources` are the spellings of its URI; `revision` and `options` None match any. Its files are linked (or copied), its
    folder is left unchanged. Raises StorageError, NoSpace.
    """
    root = workspace / kind
    if root.is_symlink() or not root.is_dir():
        return None
    receipt = read_receipt(root)
    if receipt is None or receipt.kind != kind or receipt.source not in sources:
        return None
    if revision not in (None, receipt.revision) or options not in (None, receipt.options):
        return None
    receipt = receipt.model_copy(update={"source": sources[0]})
    with disk_errors(root):
        if not receipt.matches(root):
            log.warning("prepared files have changed, preparing again folder=%s", root)
            return None
        with scratch_folder(store_path(workspace, kind) / "earlier", receipt.digest) as scratch:
            prepared = scratch / "prepared"
            shutil.rmtree(prepared, ignore_errors=True)  # links of a killed process
            prepared.mkdir()
            link_prepared(receipt, root, prepared)
            folder = publish(kind, prepared, receipt, workspace)
    log.warning("a %s of an earlier version was imported, its old folder is no longer used from=%s to=%s", kind, root, folder)
    return Prepared(receipt, folder)
