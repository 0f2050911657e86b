"""An export as a source: its manifest says which files it has, where they are stored, and their digests.

So a fine-tuned model is fetched as it was published, whatever else lies in its folder. The folder of a run's exports stands for its
latest one.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path

from trainwright.checkpoints.errors import CheckpointError
from trainwright.checkpoints.exported import Export, read_export
from trainwright.checkpoints.manifest import MANIFEST
from trainwright.checkpoints.pointers import latest_export
from trainwright.checkpoints.restore import download_files
from trainwright.initializers.errors import InitializerError
from trainwright.initializers.fetched import Fetched, FileFilter, StartProgress
from trainwright.storage.atomic_file import sync_files
from trainwright.storage.errors import ChecksumMismatch, StorageError
from trainwright.storage.open import open_store
from trainwright.storage.store import Store, read_if_present
from trainwright.storage.transfer import disk_errors
from trainwright.storage.uri import StorageUri

log = logging.getLogger(__name__)
_STORES = ("az", "file", "gs", "s3")
_FIELDS = {"version", "format", "step", "files"}


def find_export_source(uri: StorageUri) -> Export | None:
    """Return the export at the URI, or the latest one of the run's folder there; None for any other source.

    Raises InitializerError for an invalid manifest, StorageError.
    """
    if uri.scheme not in _STORES or (uri.scheme == "file" and not uri.path.is_dir()):  # only these stores have exports
        return None
    store = open_store(uri)
    try:
        if _has_manifest(store):  # the export itself
            return read_export(store)
        latest = latest_export(store)
        if latest is not None and _has_manifest(store.below(latest[0])):
            return read_export(store.below(latest[0]), latest[1])
    except CheckpointError as error:
        raise InitializerError(str(error)) from error
    return None


def revision_of(export: Export) -> str:
    """Return the revision of an export as a source: the digest of its manifest."""
    return f"export:{export.manifest.digest}"


def fetch_export(
    export: Export, file_filter: FileFilter, revision: str | None, target: Path, start_progress: StartProgress
) -> Fetched:
    """Fetch the matching files, several at once, and verify each. Resumes an interrupted download.

    Raises InitializerError if no file matches, ChecksumMismatch, StorageError (the source changed), NoSpace.
    """
    if revision is not None and revision != revision_of(export):
        raise StorageError(f"{export.uri} was replaced during the download; try again")
    files = [file for file in export.manifest.files if file_filter.matches(file.path)]
    if not files:
        raise InitializerError(f"the export {export.uri} has no file that matches {', '.join(file_filter.allow)}")
    try:
        download_files(export, files, target, start_progress)
    except CheckpointError as error:
        raise ChecksumMismatch(str(error)) from error
    with disk_errors(target):
        sync_files(target / file.path for file in files)
    manifest = export.manifest
    log.info("event=export_taken uri=%s step=%d digest=%s files=%d", export.uri, manifest.step, manifest.digest, len(files))
    details = {"export": {"uri": export.uri, "digest": manifest.digest, "step": manifest.step, "source": manifest.source}}
    return Fetched([Path(file.path) for file in files], {Path(file.path): file.sha256 for file in files}, details)


def _has_manifest(store: Store) -> bool:
    """Whether there is a manifest of an export. A file of that name may be another program's."""
    try:
        content = json.loads(read_if_present(store, MANIFEST) or b"null")
    except (ValueError, RecursionError):  # a file of another program
        return False
    return isinstance(content, dict) and content.keys() >= _FIELDS
