"""Copies a source into a folder and verifies it: a local path, a repository of the Hugging Face Hub, an http(s) address, objects, or
an export. Each kind is a module of its own, which is imported when it is needed.
"""

from __future__ import annotations

from pathlib import Path

from trainwright.initializers.errors import InitializerError
from trainwright.initializers.fetched import Fetched, FileFilter, StartProgress
from trainwright.storage.errors import StorageError
from trainwright.storage.uri import StorageUri


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
        if (export := find_export_source(uri)) is not None:
            return revision_of(export)
    except StorageError:  # said below, where the same store is asked for its objects
        pass
    if uri.scheme == "file":
        from trainwright.initializers.local_folder import resolve_folder_revision

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
    if export is not None:
        return fetch_export(export, file_filter, revision, target, start_progress)
    if uri.scheme == "file":
        from trainwright.initializers.local_folder import copy_folder

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
