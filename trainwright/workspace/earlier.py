"""What earlier versions prepared at the root of a workspace, `W/dataset` and `W/model`: taken into the shared store, unread again."""

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


def import_earlier(
    workspace: Path, kind: Kind, sources: tuple[str, ...], revision: str | None, options: dict[str, Any] | None
) -> Prepared | None:
    """The dataset or model at the workspace's root, in the shared store; None where it is not the one that is asked for.

    `sources` are the spellings of its URI; `revision` and `options` None take any. Its files are linked (or copied), its
    folder is left as it is. Raises StorageError, NoSpace.
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
        if not receipt.holds(root):
            log.warning("files changed since they were prepared folder=%s; preparing again", root)
            return None
        with scratch_folder(store_path(workspace, kind) / "earlier", receipt.digest) as scratch:
            prepared = scratch / "prepared"
            shutil.rmtree(prepared, ignore_errors=True)  # what a process that was killed had linked
            prepared.mkdir()
            link_prepared(receipt, root, prepared)
            folder = publish(kind, prepared, receipt, workspace)
    log.warning("a %s of an earlier version is used from=%s now also at=%s; the old folder is not used again", kind, root, folder)
    return Prepared(receipt, folder)
