"""The Hugging Face Hub as a source: pinned to a commit, with every file verified against the digest that the hub lists.

Files are fetched by our own downloader, which resumes and verifies. `huggingface_hub` (extra `hub`) is needed only for repositories
whose files the hub serves by its xet protocol alone.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Sequence
from pathlib import Path

from trainwright.initializers.errors import InitializerError
from trainwright.initializers.fetched import Fetched
from trainwright.initializers.file_filter import FileFilter, StartProgress
from trainwright.initializers.hub_api import HubFile, HubRepository
from trainwright.initializers.hub_cache import COMMIT, cached_commit, fetch_cached, is_offline
from trainwright.storage.digests import ProgressCallback
from trainwright.storage.errors import ChecksumMismatch, StorageError
from trainwright.storage.foreign_texts import without_credentials
from trainwright.storage.http.downloads import Download, download_files
from trainwright.storage.http.errors import HttpError, is_transient
from trainwright.storage.http.hub_environment import hub_token
from trainwright.storage.http.remote_file import RemoteFile
from trainwright.storage.http.retries import Retries, RetryPolicy
from trainwright.storage.transfer import check_space
from trainwright.storage.uri import StorageUri

log = logging.getLogger(__name__)
RESOLVE_POLICY = RetryPolicy(first_contact=5.0, without_progress=30.0)
"""Short: if the hub does not answer, an existing result is used."""
FETCH_POLICY = RetryPolicy()
_XET = "X-Xet-Hash"


def resolve_commit(uri: StorageUri, kind: str) -> str | None:
    """Return the commit of the URI's revision (default `main`), or None if the hub cannot be queried."""
    if COMMIT.fullmatch(uri.revision):
        return uri.revision
    if is_offline(os.environ):
        return cached_commit(uri, kind, os.environ)
    repository = HubRepository(uri, kind, os.environ)
    try:
        with repository.client:
            return repository.commit(uri.revision or "main", Retries(RESOLVE_POLICY))
    except (InitializerError, StorageError) as error:
        # Not fatal: only one step may have the token, and the files may exist already.
        log.warning("the commit could not be resolved error=%s", error)
        return None


def fetch_repository(
    uri: StorageUri, file_filter: FileFilter, commit: str | None, target: Path, start_progress: StartProgress
) -> Fetched:
    """Download the matching files of a repository at a commit and verify each. Resumes an interrupted download in `target`.

    Raises InitializerError (no access, no such repository or revision), StorageError (the hub cannot be reached), and
    ChecksumMismatch for a file whose digest differs from the hub's; the file is removed.
    """
    if is_offline(os.environ):
        return Fetched(fetch_cached(uri, file_filter, commit, target, start_progress, os.environ))
    repository = HubRepository(uri, file_filter.kind, os.environ)
    retries = Retries(FETCH_POLICY)
    with repository.client:
        commit = commit or repository.commit(uri.revision or "main", retries)
        files = [file for file in repository.files(commit, retries) if file_filter.matches(file.name)]
        if not files:
            raise InitializerError(f"{uri} has no file that matches {', '.join(file_filter.allow)}")
        missing = [file for file in files if not _is_complete(file, target)]
        check_space(target, sum(file.size for file in missing))
        on_progress = start_progress(sum(file.size for file in files))
        on_progress(sum(file.size for file in files) - sum(file.size for file in missing))
        _download(repository, commit, missing, target, retries, on_progress)
    verified = {Path(file.name): file.digest.value for file in files if file.digest.algorithm == "sha256"}
    return Fetched([Path(file.name) for file in files], verified)


def _download(
    repository: HubRepository,
    commit: str,
    files: Sequence[HubFile],
    target: Path,
    retries: Retries,
    on_progress: ProgressCallback,
) -> None:
    downloads = [
        Download(
            RemoteFile(f"{repository.uri}: {file.name}", repository.file_url(commit, file.path), file.size, file.digest),
            target / file.name,
        )
        for file in files
    ]
    with repository.errors():
        try:
            download_files(repository.client, downloads, retries, on_progress)
        except HttpError as error:
            if is_transient(error) or error.code or not error.headers.get(_XET):
                raise
            log.info("event=download_by_xet uri=%s", repository.uri)
            _download_by_xet(repository, commit, files, target, on_progress)


def _download_by_xet(
    repository: HubRepository, commit: str, files: Sequence[HubFile], target: Path, on_progress: ProgressCallback
) -> None:
    """Let `huggingface_hub` download what has no address of its own, and verify it: the library does not."""
    try:
        import huggingface_hub
        from huggingface_hub.errors import HfHubHTTPError
    except ImportError as error:
        raise InitializerError(f"{repository.uri} is served by xet only: install trainwright[hub]") from error
    uri = repository.uri
    missing = [file for file in files if not _is_complete(file, target)]
    try:
        huggingface_hub.snapshot_download(
            uri.location,
            repo_type=repository.kind,
            revision=commit,
            local_dir=target,
            allow_patterns=[_literal(file.path) for file in missing],
            token=hub_token(os.environ) or None,
            endpoint=repository.endpoint,
        )
    except (HfHubHTTPError, ValueError, RuntimeError, OSError) as error:
        raise StorageError(f"{uri}: the hub's client failed: {without_credentials(error)}") from None
    for file in missing:
        if file.path != file.name:
            (target / file.name).parent.mkdir(parents=True, exist_ok=True)
            os.replace(target / file.path, target / file.name)
        if not _is_complete(file, target):
            (target / file.name).unlink(missing_ok=True)
            raise ChecksumMismatch(
                f"{uri}: {file.name} is corrupt (its digest differs from the hub's) and was removed; try again"
            )
        on_progress(file.size)


def _is_complete(file: HubFile, target: Path) -> bool:
    """Whether an earlier attempt has fetched the file; its contents are compared with the digest."""
    path = target / file.name
    return path.is_file() and not path.is_symlink() and file.digest.matches(path, file.size)


def _literal(name: str) -> str:
    """Escape a name to a glob pattern that matches only it."""
    return re.sub(r"([*?[])", r"[\1]", name)
