"""Copies a source into a folder and verifies it: from a local path, the Hugging Face Hub, an http(s) address, or an S3 store."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from trainwright.initializers.errors import InitializerError
from trainwright.initializers.fetched import Fetched
from trainwright.initializers.file_filter import FileFilter, StartProgress
from trainwright.storage.digests import file_digest
from trainwright.storage.plain_files import folder_files
from trainwright.storage.transfer import check_space, copy_file
from trainwright.storage.uri import StorageUri


def resolve_revision(uri: StorageUri, file_filter: FileFilter) -> str | None:
    """Return the current revision of a source: a hub commit, or a digest over names, sizes and times (S3: ETags) of files.

    None if the source cannot be queried from here; then an existing receipt is trusted. Raises InitializerError, StorageError,
    OSError.
    """
    check_kind(uri, file_filter)
    if uri.scheme == "file":
        if not uri.path.exists():
            return None
        return f"stat:{_stat_digest(uri.path, file_filter)}"
    if uri.scheme == "s3":
        from trainwright.initializers.s3 import resolve_objects_revision

        return resolve_objects_revision(uri, file_filter)
    if uri.is_web:
        from trainwright.initializers.http_file import resolve_file_revision

        return resolve_file_revision(uri)
    from trainwright.initializers.hub import resolve_commit

    return resolve_commit(uri, file_filter.kind)


def fetch(uri: StorageUri, file_filter: FileFilter, revision: str | None, target: Path, start_progress: StartProgress) -> Fetched:
    """Copy the matching files to `target`. `revision` is from `resolve_revision`.

    Resumes an interrupted transfer. Raises InitializerError if no file matches, StorageError, NoSpace, OSError.
    """
    if uri.scheme == "hf":
        from trainwright.initializers.hub import fetch_repository

        return fetch_repository(uri, file_filter, revision, target, start_progress)
    if uri.scheme == "s3":
        from trainwright.initializers.s3 import fetch_objects

        return fetch_objects(uri, file_filter, revision, target, start_progress)
    if uri.is_web:
        from trainwright.initializers.http_file import fetch_file

        return fetch_file(uri, revision, target, start_progress)
    source = uri.path
    if not source.exists():
        raise InitializerError(f"{uri} does not exist")
    paths = _local_files(source, file_filter)
    if not paths:
        raise InitializerError(f"{uri} has no file that matches {', '.join(file_filter.allow)}")
    root = source if source.is_dir() else source.parent
    within = root if source.is_dir() else None  # a single file is what the user named, link or not
    sizes = {path: (root / path).stat().st_size for path in paths}
    check_space(target, sum(size for path, size in sizes.items() if not _has(target / path, size)))
    on_progress = start_progress(sum(sizes.values()))
    for path, size in sizes.items():
        if _has(target / path, size) and file_digest(target / path) == file_digest(root / path, within=within):
            on_progress(size)
        else:
            # Not a link: the source may change or be deleted during training.
            copy_file(root / path, target / path, on_progress, within=within)
    return Fetched(paths)


def check_kind(uri: StorageUri, file_filter: FileFilter) -> None:
    """Raise InitializerError if the URI names another kind of source than the one to prepare."""
    if uri.kind and uri.kind != file_filter.kind:
        raise InitializerError(f"{uri} names a {uri.kind}, but a {file_filter.kind} is needed here")
    if uri.is_web and file_filter.kind == "model":
        raise InitializerError(f"{uri}: an address is a single file, but a model is a folder; use hf://, s3:// or file://")


def _local_files(source: Path, file_filter: FileFilter) -> list[Path]:
    if not source.is_dir():
        return [Path(source.name)]

    def is_wanted(path: Path) -> bool:
        """Also a link to a folder, which would leave out all files in it without a word."""
        return file_filter.matches(path.as_posix()) or ((source / path).is_dir() and not _is_hidden(path))

    found = folder_files(source)
    found.require_none_refused(source, is_wanted)
    return [path for path in found.files if file_filter.matches(path.as_posix())]


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _has(path: Path, size: int) -> bool:
    return path.is_file() and path.stat().st_size == size


def _stat_digest(source: Path, file_filter: FileFilter) -> str:
    root = source if source.is_dir() else source.parent
    digest = hashlib.sha256()
    for path in _local_files(source, file_filter):
        stat = os.stat(root / path)
        digest.update(os.fsencode(path) + f"\0{stat.st_size}\0{stat.st_mtime_ns}\n".encode())
    return digest.hexdigest()
