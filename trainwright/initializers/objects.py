"""An object store as a source: all objects below a prefix, or a single object, verified by size and digest."""

from __future__ import annotations

import contextlib
import hashlib
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from trainwright.initializers.errors import InitializerError
from trainwright.initializers.fetched import Fetched, FileFilter
from trainwright.storage.atomic_file import sync_files
from trainwright.storage.errors import ChecksumMismatch, NoAccess, NoBucket, NotFound, StorageError
from trainwright.storage.objects.object_reader import ListedObject, ObjectReader
from trainwright.storage.open import open_store
from trainwright.storage.parallel import Stop, for_each
from trainwright.storage.plain_files import ProgressCallback, file_digest, no_progress
from trainwright.storage.store import StoredFile
from trainwright.storage.transfer import check_space, disk_errors
from trainwright.storage.uri import StorageUri

log = logging.getLogger(__name__)
_AT_ONCE = 8
_TRIES = 2
"""A byte may have been damaged on its way."""
_MD5_BYTES = 8 * 1024 * 1024
"""Larger objects are mostly uploaded in parts, and their ETag is then no MD5."""


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
) -> Fetched:
    """Download the matching objects, several at once. Resumes an interrupted download.

    Raises InitializerError (no access, no such bucket, no match), ChecksumMismatch, StorageError (the source changed), NoSpace.
    """
    with access_errors():
        base, objects = _objects(uri, file_filter)
    if not objects:
        raise InitializerError(f"{uri} has no file that matches {', '.join(file_filter.allow)}")
    first = _revision(objects)
    if revision is not None and first != revision:
        raise StorageError(f"{uri} changed during the download; try again")
    check_space(target, sum(each.size for each in objects if not (target / each.name).is_file()))
    stop, store = Stop(), _open(base)
    on_progress = stop.watch(start_progress(sum(each.size for each in objects)))

    def fetch_one(each: ListedObject) -> str:
        return _fetch(store, each, target / each.name, revision is not None, on_progress)

    digests = for_each(objects, fetch_one, at_once=_AT_ONCE, stop=stop)
    if _revision(_objects(uri, file_filter)[1]) != first:
        raise StorageError(f"{uri} changed during the download; try again")
    with disk_errors(target):
        sync_files(target / each.name for each in objects)
    paths = [Path(each.name) for each in objects]
    return Fetched(paths, dict(zip(paths, digests, strict=True)))


def _fetch(store: ObjectReader, each: ListedObject, local_path: Path, same_revision: bool, on_progress: ProgressCallback) -> str:
    """Return the SHA-256. A file of an earlier attempt is used if it is of the same revision: a part of one would be shorter."""
    if same_revision and local_path.is_file() and local_path.stat().st_size == each.size:  # left by an earlier attempt
        on_progress(each.size)
        return file_digest(local_path)
    for attempt in range(_TRIES):
        arrived = store.get(each.name, local_path, no_progress if attempt else on_progress)
        if arrived.size == each.size and _is_as_stored(store, each, local_path, arrived):  # whole, as the store describes it
            return arrived.sha256
        local_path.unlink()
        log.warning("event=download_damaged uri=%s attempt=%d", store.uri.join(each.name), attempt + 1)
    where = store.uri.join(each.name)
    raise ChecksumMismatch(f"{where} is corrupt or has changed: received {arrived.size} bytes, expected {each.size}; try again")


def _is_as_stored(store: ObjectReader, each: ListedObject, local_path: Path, arrived: StoredFile) -> bool:
    """Compare with the ETag if that is the MD5 of the contents, else with the CRC64NVME, as far as the store has one."""
    etag = each.etag.strip('"')
    # The ETag of an upload in one part is the MD5.
    if each.size <= _MD5_BYTES and hashlib.md5(local_path.read_bytes(), usedforsecurity=False).hexdigest() == etag:
        return True
    stored = store.inspect(each.name)
    known = stored.crc64nvme if stored is not None and arrived.crc64nvme else ""
    return not known or known == arrived.crc64nvme


@contextlib.contextmanager
def access_errors() -> Iterator[None]:
    """A store that denies access, or has no such bucket, is an unusable source: a retry cannot succeed."""
    try:
        yield
    except (NoAccess, NoBucket) as error:
        raise InitializerError(str(error)) from error


def _objects(uri: StorageUri, file_filter: FileFilter) -> tuple[StorageUri, list[ListedObject]]:
    """Return the URI that the names are relative to, and the matching objects."""
    found = _open(uri).list_objects()
    if found or not uri.key:  # a prefix, or the whole bucket
        return uri, [each for each in found if file_filter.matches(each.name)]
    folder, _, name = uri.location.rpartition("/")
    base = replace(uri, location=folder)
    try:
        single = _open(base).stat(name)
    except NotFound as error:
        raise InitializerError(f"{uri} does not exist: there is no object with this key or prefix") from error
    return base, [single]


def _open(uri: StorageUri) -> ObjectReader:
    store = open_store(uri)
    assert isinstance(store, ObjectReader)  # by its scheme
    return store


def _revision(objects: list[ListedObject]) -> str:
    digest = hashlib.sha256()
    for each in objects:
        digest.update(f"{each.name}\0{each.size}\0{each.etag}\n".encode())
    return f"etags:{digest.hexdigest()}"
