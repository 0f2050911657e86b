"""An S3 bucket as a source: all objects below a prefix, or a single object, verified by size and digest."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from pathlib import Path

from trainwright.initializers.errors import InitializerError
from trainwright.initializers.file_filter import FileFilter
from trainwright.storage.digests import ProgressCallback, file_digest
from trainwright.storage.errors import ChecksumMismatch, NoAccess, NoBucket, NotFound, StorageError
from trainwright.storage.s3_listing import ListedObject, list_objects
from trainwright.storage.s3_store import S3Store
from trainwright.storage.transfer import check_space
from trainwright.storage.uri import StorageUri

log = logging.getLogger(__name__)


def resolve_objects_revision(uri: StorageUri, file_filter: FileFilter) -> str | None:
    """Return a digest over names, sizes and ETags, or None if the store cannot be queried.

    Raises InitializerError if there are no objects at the URI.
    """
    try:
        return _revision(_objects(uri, file_filter)[1])
    except StorageError as error:  # not fatal: only one step may have the credentials, and the files may exist already
        log.warning("the objects could not be listed error=%s", error)
        return None


def fetch_objects(
    uri: StorageUri,
    file_filter: FileFilter,
    revision: str | None,
    target: Path,
    start_progress: Callable[[int], ProgressCallback],
) -> list[Path]:
    """Download the matching objects. Returns their paths in `target`. Resumes an interrupted download.

    Raises InitializerError (no access, no such bucket, no match), ChecksumMismatch, StorageError (the source changed), NoSpace.
    """
    try:
        base, objects = _objects(uri, file_filter)
    except (NoAccess, NoBucket) as error:
        raise InitializerError(str(error)) from error
    if not objects:
        raise InitializerError(f"{uri} has no file that matches {', '.join(file_filter.allow)}")
    first = _revision(objects)
    if revision is not None and first != revision:
        raise StorageError(f"{uri} changed during the download; try again")
    check_space(target, sum(each.size for each in objects if not (target / each.name).is_file()))
    on_progress = start_progress(sum(each.size for each in objects))
    store = S3Store(base)
    for each in objects:
        _fetch(store, each, target / each.name, revision is not None, on_progress)
    if _revision(_objects(uri, file_filter)[1]) != first:
        raise StorageError(f"{uri} changed during the download; try again")
    return [Path(each.name) for each in objects]


def _fetch(store: S3Store, each: ListedObject, local_path: Path, same_revision: bool, on_progress: ProgressCallback) -> None:
    if local_path.is_file() and local_path.stat().st_size == each.size:
        # Downloads are atomic, so a file of this size from an attempt at the same revision is complete.
        stored = store.head(each.name)
        if stored is not None and (stored.sha256 == file_digest(local_path) if stored.sha256 else same_revision):
            on_progress(each.size)
            return
    arrived = store.get(each.name, local_path, on_progress)
    if arrived.size != each.size:
        local_path.unlink(missing_ok=True)
        raise ChecksumMismatch(f"{store.uri.join(each.name)}: received {arrived.size} of {each.size} bytes; try again")


def _objects(uri: StorageUri, file_filter: FileFilter) -> tuple[StorageUri, list[ListedObject]]:
    """Return the URI that the names are relative to, and the matching objects."""
    found = list_objects(uri)
    if found or not uri.key:
        return uri, [each for each in found if file_filter.matches(each.name)]
    folder, _, name = uri.location.rpartition("/")
    base = StorageUri("s3", folder)
    try:
        single = S3Store(base).stat(name)
    except NotFound as error:
        raise InitializerError(f"{uri} does not exist: there is no object with this key or prefix") from error
    return base, [single]


def _revision(objects: list[ListedObject]) -> str:
    digest = hashlib.sha256()
    for each in objects:
        digest.update(f"{each.name}\0{each.size}\0{each.etag}\n".encode())
    return f"etags:{digest.hexdigest()}"
