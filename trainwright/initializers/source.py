"""Copies a source into a folder and verifies it: a local path, a repository of the Hub, an http(s) address, objects, or an export.

A local path is a file, or all matching files of a folder. Each other kind is a module that is imported when it is needed.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from trainwright.initializers.errors import InitializerError
from trainwright.initializers.fetched import Fetched, FileFilter, StartProgress
from trainwright.storage.atomic_file import sync_files
from trainwright.storage.claims import unseen_path_hint
from trainwright.storage.errors import StorageError
from trainwright.storage.parallel import Stop, for_each
from trainwright.storage.plain_files import file_digest, folder_files
from trainwright.storage.transfer import check_space, copy_new_file
from trainwright.storage.uri import StorageUri

_AT_ONCE = 4


def resolve_revision(uri: StorageUri, file_filter: FileFilter) -> str | None:
    """Return the current revision of a source: a hub commit, the digest of an export's manifest, or a digest over names, sizes and
    times (of objects: ETags) of files.

    None if the source cannot be queried from here; then an existing receipt is trusted. Raises InitializerError, StorageError,
    OSError.
    """
    check_kind(uri, file_filter)
    if uri.scheme == "hf":
        from trainwright.initializers.hub import resolve_commit

        return resolve_commit(uri, file_filter.kind)
    if uri.is_web:
        from trainwright.initializers.http_file import resolve_file_revision

        return resolve_file_revision(uri)
    from trainwright.initializers.export_source import find_export_source, revision_of

    try:
        if (export := find_export_source(uri)) is not None:  # an export says itself which files it has
            return revision_of(export)
    except StorageError:  # said below, where the same store is asked for its objects
        pass
    if uri.scheme == "file":
        return resolve_folder_revision(uri, file_filter)
    from trainwright.initializers.objects import resolve_objects_revision

    return resolve_objects_revision(uri, file_filter)


def fetch(uri: StorageUri, file_filter: FileFilter, revision: str | None, target: Path, start_progress: StartProgress) -> Fetched:
    """Copy the matching files to `target`. `revision` is from `resolve_revision`.

    Resumes an interrupted transfer. Raises InitializerError if no file matches, StorageError, NoSpace, OSError.
    """
    if uri.scheme == "hf":
        from trainwright.initializers.hub import fetch_repository

        return fetch_repository(uri, file_filter, revision, target, start_progress)
    if uri.is_web:
        from trainwright.initializers.http_file import fetch_file

        return fetch_file(uri, revision, target, start_progress)
    from trainwright.initializers.export_source import fetch_export, find_export_source
    from trainwright.initializers.objects import access_errors

    with access_errors():
        export = find_export_source(uri)
    if export is not None:  # its files are stored under other names
        return fetch_export(export, file_filter, revision, target, start_progress)
    if uri.scheme == "file":
        return copy_folder(uri, file_filter, target, start_progress)
    from trainwright.initializers.objects import fetch_objects

    return fetch_objects(uri, file_filter, revision, target, start_progress)


def revision_for(uri: StorageUri, file_filter: FileFilter, revision: str | None) -> str | None:
    """Return the revision of the files that a filter matches. That of an object store is a digest over exactly these."""
    is_of_filter = uri.scheme in ("s3", "gs", "az")
    return resolve_revision(uri, file_filter) if is_of_filter and revision is not None else revision


def check_kind(uri: StorageUri, file_filter: FileFilter) -> None:
    """Raise InitializerError if the URI names another kind of source than the one to prepare."""
    if uri.kind and uri.kind != file_filter.kind:
        raise InitializerError(f"{uri} names a {uri.kind}, but a {file_filter.kind} is needed here")
    if uri.is_web and file_filter.kind == "model":
        raise InitializerError(f"{uri}: an address is a single file, but a model is a folder; use hf://, s3:// or file://")


def resolve_folder_revision(uri: StorageUri, file_filter: FileFilter) -> str | None:
    """Return a digest over names, sizes and times of the matching files, or None if the path does not exist here."""
    source = uri.path
    if not source.exists():  # a folder of another machine
        return None
    root = source if source.is_dir() else source.parent
    digest = hashlib.sha256()
    for path in _matching_files(source, file_filter):
        stat = os.stat(root / path)
        digest.update(os.fsencode(path) + f"\0{stat.st_size}\0{stat.st_mtime_ns}\n".encode())
    return f"stat:{digest.hexdigest()}"


def copy_folder(uri: StorageUri, file_filter: FileFilter, target: Path, start_progress: StartProgress) -> Fetched:
    """Copy the matching files to `target`, which only this process uses. Copies that are there already are compared and kept.

    Not links: the source may change or be deleted during training. Raises InitializerError, StorageError, NoSpace, OSError.
    """
    source = uri.path
    if not source.exists():
        raise InitializerError(f"{uri} does not exist{unseen_path_hint(uri)}")
    paths = _matching_files(source, file_filter)
    if not paths:
        raise InitializerError(f"{uri} has no file that matches {', '.join(file_filter.allow)}")
    root = source if source.is_dir() else source.parent
    within = root if source.is_dir() else None  # a single file is what the user named, link or not
    sizes = {path: (root / path).stat().st_size for path in paths}
    check_space(target, sum(size for path, size in sizes.items() if not _has(target / path, size)))
    stop = Stop()
    on_progress = stop.watch(start_progress(sum(sizes.values())))

    def copy(path: Path) -> str:
        local_path = target / path
        # Copied by an earlier attempt.
        if _has(local_path, sizes[path]) and (digest := file_digest(local_path)) == file_digest(root / path, within=within):
            on_progress(sizes[path])
            return digest
        local_path.unlink(missing_ok=True)
        return copy_new_file(root / path, local_path, on_progress, within=within).sha256

    digests = for_each(paths, copy, at_once=_AT_ONCE, stop=stop)
    sync_files(target / path for path in paths)
    return Fetched(paths, dict(zip(paths, digests, strict=True)))


def _matching_files(source: Path, file_filter: FileFilter) -> list[Path]:
    if not source.is_dir():  # a single file, whatever its name
        return [Path(source.name)]

    def is_wanted(path: Path) -> bool:
        """Also a link to a folder, which would leave out all files in it without a word."""
        return file_filter.matches(path.as_posix()) or (
            (source / path).is_dir() and not any(part.startswith(".") for part in path.parts)
        )

    found = folder_files(source)
    found.require_none_refused(source, is_wanted)
    return [path for path in found.files if file_filter.matches(path.as_posix())]


def _has(path: Path, size: int) -> bool:
    return path.is_file() and path.stat().st_size == size
