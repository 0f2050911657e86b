"""The Hugging Face Hub as a source: pinned to a commit, with every file verified against the digest that the hub lists.

`huggingface_hub` lists the files, and fetches those that the hub serves by xet. We fetch the others as we do those of any server:
the library resumes none after a kill, and its `snapshot_download` takes 1.4 times our CPU seconds for large files and 4 times those
for 2,000 small ones, although it checks no digest (`bench/download.py`).
"""

from __future__ import annotations

import logging
import os
import shutil
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trainwright.initializers.errors import InitializerError
from trainwright.initializers.fetched import Fetched, FileFilter, StartProgress
from trainwright.initializers.hub_cache import COMMIT, cached_commit, fetch_cached, is_offline
from trainwright.initializers.hub_repository import HubFile, HubRepository
from trainwright.storage.atomic_file import sync_files
from trainwright.storage.errors import ChecksumMismatch, StorageError
from trainwright.storage.http.client import Cancelled, HttpClient, Retries, RetryPolicy
from trainwright.storage.http.download import download
from trainwright.storage.plain_files import ProgressCallback
from trainwright.storage.transfer import check_space, disk_errors
from trainwright.storage.uri import StorageUri

log = logging.getLogger(__name__)
RESOLVE_POLICY = RetryPolicy(first_contact=5.0, without_progress=30.0)
"""Short: if the hub does not answer, an existing result is used."""
FETCH_POLICY = RetryPolicy()
_AT_ONCE = 8
"""As many as the library fetches; each may take 20 MiB of memory."""
_SLICE = 0.5
"""Seconds after which a wait looks for an error of another thread."""
_XET_FOLDER = ".xet"
"""In the target: what the library keeps of a file by xet, and the file until it is verified."""


def resolve_commit(uri: StorageUri, kind: str) -> str | None:
    """Return the commit of the URI's revision (default `main`), or None if the hub cannot be queried."""
    if COMMIT.fullmatch(uri.revision):  # a commit never changes
        return uri.revision
    try:
        if is_offline(os.environ):  # no request may be sent
            return cached_commit(uri, kind)
        with HubRepository(uri, kind).connected() as repository:
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
    if is_offline(os.environ):  # no request may be sent
        return Fetched(fetch_cached(uri, file_filter, commit, target, start_progress))
    retries = Retries(FETCH_POLICY)
    with HubRepository(uri, file_filter.kind).connected() as repository:
        commit = commit or repository.commit(uri.revision or "main", retries)
        files = [file for file in repository.files(commit, retries) if file_filter.matches(file.name)]
        if not files:
            raise InitializerError(f"{uri} has no file that matches {', '.join(file_filter.allow)}")
        missing = [file for file in files if not _is_complete(file, target)]
        check_space(target, sum(file.size for file in missing))
        on_progress = start_progress(sum(file.size for file in files))
        on_progress(sum(file.size for file in files) - sum(file.size for file in missing))
        with repository.client() as client:
            _Transfer(repository, client, commit, target, retries, on_progress).run(missing)
    with disk_errors(target):
        sync_files(target / file.name for file in missing)
    verified = {Path(file.name): file.digest.value for file in files if file.digest.algorithm == "sha256"}
    return Fetched([Path(file.name) for file in files], verified)


def _is_complete(file: HubFile, target: Path) -> bool:
    """Whether an earlier attempt has fetched the file; its contents are compared with the digest."""
    path = target / file.name
    return path.is_file() and not path.is_symlink() and file.digest.matches(path, file.size)


@dataclass
class _Transfer:
    """The files of one call, fetched by threads that end with the process: none waits for a server that does not answer."""

    repository: HubRepository
    client: HttpClient
    commit: str
    target: Path
    retries: Retries
    on_progress: ProgressCallback
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _failures: list[BaseException] = field(default_factory=list)
    _corrupt: list[BaseException] = field(default_factory=list)
    _is_stopped: bool = False

    def run(self, files: Sequence[HubFile]) -> None:
        """Fetch all files. The first error ends the others, but a corrupt file does not keep the rest from arriving."""
        shutil.rmtree(self.target / _XET_FOLDER, ignore_errors=True)  # of a killed process, which nothing resumes
        waiting = iter(files)  # from which each thread takes the next
        threads = [threading.Thread(target=self._work, args=(waiting,), daemon=True) for _ in files[:_AT_ONCE]]
        self.retries.progress()  # comparing what was there may have taken long
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                while thread.is_alive() and not self._failures:
                    thread.join(_SLICE)
                    self.retries.check(str(self.repository.uri))
        finally:
            self.retries.cancel()
            with self._lock:
                self._is_stopped = True
        shutil.rmtree(self.target / _XET_FOLDER, ignore_errors=True)
        for error in (*self._failures, *self._corrupt):
            raise error

    def _work(self, waiting: Iterator[HubFile]) -> None:
        for file in waiting:
            if self._is_stopped:  # another file has failed, or the call was stopped
                return
            try:
                with self.repository.refusals(), disk_errors(self.target / file.name):
                    if not (file.is_xet and self._fetch_by_xet(file)):
                        remote = self.repository.remote(file, self.commit)
                        download(self.client, remote, self.target / file.name, self.retries, self._count)
            except ChecksumMismatch as error:  # the other files can still arrive, and need not be fetched again
                self._corrupt.append(error)
            except BaseException as error:  # raised by `run`, unless it has ended before
                self._failures.append(error)

    def _count(self, number: int) -> None:
        with self._lock:
            if self._is_stopped:
                raise Cancelled("the download was stopped")
            if number > 0:
                self.retries.progress()
            self.on_progress(number)

    def _fetch_by_xet(self, file: HubFile) -> bool:
        """Return False if xet has failed, whatever the reason: the same file can be fetched by http."""
        arrived = 0

        def count(number: int) -> None:
            nonlocal arrived
            arrived += number
            self._count(number)

        try:
            path = self.repository.fetch_by_xet(file, self.commit, self.target / _XET_FOLDER, count)
            # A slow disk takes minutes for tens of gigabytes, in which the hub is not silent.
            if not file.digest.matches(path, file.size, self.retries.progress):
                raise ChecksumMismatch(f"{file.name} is corrupt")
        except (InitializerError, StorageError) as error:  # the same file can be fetched by http
            log.warning("event=download_xet_failed file=%r reason=%r", file.name, str(error))
            self._count(-arrived)
            return False
        self._count(file.size - arrived)
        (self.target / file.name).parent.mkdir(parents=True, exist_ok=True)
        os.replace(path, self.target / file.name)
        return True
