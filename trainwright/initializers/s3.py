"""A bucket of an S3 store as a source: everything below a prefix, or a single object, checked for size and digest."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from trainwright.initializers.errors import InitializerError
from trainwright.storage.digests import Advance, file_digest
from trainwright.storage.errors import Damaged, NoAccess, NoBucket, NotThere, StorageError
from trainwright.storage.s3_listing import ListedObject, list_objects
from trainwright.storage.s3_store import S3Store
from trainwright.storage.transfer import check_space
from trainwright.storage.uri import StorageUri

if TYPE_CHECKING:
    from trainwright.initializers.source import Wanted

log = logging.getLogger(__name__)


def objects_revision(uri: StorageUri, wanted: Wanted) -> str | None:
    """A digest over names, sizes and ETags; None when the store does not say them. Raises InitializerError for a name that is none."""
    try:
        return _revision(_objects(uri, wanted)[1])
    except StorageError as error:  # what is on the disk already may do: keys may be given to one step only
        log.warning("the store was asked in vain error=%s", error)
        return None


def fetch_objects(
    uri: StorageUri, wanted: Wanted, revision: str | None, target: Path, announce: Callable[[int], Advance]
) -> list[Path]:
    """Download the wanted objects; returns their paths in `target`. Goes on from what is there.

    Raises InitializerError (no access, no such bucket, nothing that fits), Damaged, StorageError (changed meanwhile), NoSpace.
    """
    try:
        base, objects = _objects(uri, wanted)
    except (NoAccess, NoBucket) as error:
        raise InitializerError(str(error)) from error
    if not objects:
        raise InitializerError(f"{uri} has no file that fits {', '.join(wanted.allow)}")
    first = _revision(objects)
    if revision is not None and first != revision:
        raise StorageError(f"{uri} changed while it was being fetched; try again")
    check_space(target, sum(each.size for each in objects if not (target / each.name).is_file()))
    advance = announce(sum(each.size for each in objects))
    store = S3Store(base)
    for each in objects:
        _fetch(store, each, target / each.name, revision is not None, advance)
    if _revision(_objects(uri, wanted)[1]) != first:
        raise StorageError(f"{uri} changed while it was being fetched; try again")
    return [Path(each.name) for each in objects]


def _fetch(store: S3Store, each: ListedObject, place: Path, same_revision: bool, advance: Advance) -> None:
    if place.is_file() and place.stat().st_size == each.size:
        # Files appear whole, so one of this size from an attempt at the same revision is the one.
        there = store.head(each.name)
        if there is not None and (there.sha256 == file_digest(place) if there.sha256 else same_revision):
            advance(each.size)
            return
    arrived = store.get(each.name, place, advance)
    if arrived.size != each.size:
        place.unlink(missing_ok=True)
        raise Damaged(f"{store.uri.join(each.name)} has {arrived.size} bytes instead of {each.size}; try again")


def _objects(uri: StorageUri, wanted: Wanted) -> tuple[StorageUri, list[ListedObject]]:
    """The wanted objects and the URI that their names are relative to."""
    found = list_objects(uri)
    if found or not uri.key:
        return uri, [each for each in found if wanted.takes(each.name)]
    folder, _, name = uri.location.rpartition("/")
    base = StorageUri("s3", folder)
    try:
        single = S3Store(base).stat(name)
    except NotThere as error:
        raise InitializerError(f"{uri} does not exist: there is no such object, and none below it") from error
    return base, [single]


def _revision(objects: list[ListedObject]) -> str:
    digest = hashlib.sha256()
    for each in objects:
        digest.update(f"{each.name}\0{each.size}\0{each.etag}\n".encode())
    return f"etags:{digest.hexdigest()}"
