"""Copies a dataset as it is, as Trainer's dataset initializer does: for programs that read the source's own files."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

from trainwright.initializers.fetched import FileFilter, StartProgress
from trainwright.initializers.prepare import Preparation, parse_source, prepare_folder
from trainwright.initializers.source import fetch
from trainwright.storage.plain_files import no_progress
from trainwright.storage.uri import StorageUri
from trainwright.workspace.receipt import Receipt, digest_files

log = logging.getLogger(__name__)


def copy_dataset(
    uri: str, target: Path, *, ignore: tuple[str, ...] = (), start_progress: StartProgress = lambda _total: no_progress
) -> Receipt:
    """Copy all files of the dataset at `uri` to `target`, atomically. Returns the receipt.

    An existing copy is reused if source and revision are the same. `ignore` has glob patterns of files to leave out.
    Raises InitializerError (no files), StorageError, NoSpace.
    """
    parsed, uri = parse_source(uri)
    file_filter, options = FileFilter("dataset", ignore=ignore), {"as_is": True, "ignore": list(ignore)}

    def make(source: StorageUri, revision: str | None, scratch: Path) -> tuple[Receipt, Path]:
        copied = scratch / "copied"
        shutil.rmtree(copied, ignore_errors=True)
        copied.mkdir()
        found = fetch(source, file_filter, revision, copied, start_progress)
        receipt = Receipt(
            kind="dataset",
            source=uri,
            revision=revision or "",
            options=options,
            files=digest_files(copied, found.paths),
            details={**found.details},
        )
        receipt.write(copied)
        log.info("dataset copied uri=%s files=%d digest=%s", uri, len(receipt.files), receipt.digest)
        return receipt, copied

    return prepare_folder(Preparation("dataset", parsed, uri, file_filter, options, make), target)
