"""A single file at an http(s) address as a source, identified by the digest in the address, its ETag or its time of change."""

from __future__ import annotations

import hashlib
import logging
import re
import uuid
from pathlib import Path
from urllib.parse import parse_qsl, unquote

from trainwright.initializers.errors import InitializerError
from trainwright.initializers.fetched import Fetched, StartProgress
from trainwright.storage.atomic_file import sync_files
from trainwright.storage.errors import BadUri, ChecksumMismatch, StorageError
from trainwright.storage.http.client import HttpClient, HttpError, Retries, RetryPolicy
from trainwright.storage.http.download import ContentDigest, RemoteFile, describe, download
from trainwright.storage.transfer import check_space, disk_errors
from trainwright.storage.uri import StorageUri

log = logging.getLogger(__name__)
RESOLVE_POLICY = RetryPolicy(first_contact=5.0, without_progress=30.0)
FETCH_POLICY = RetryPolicy()
_SIGNATURE = re.compile(
    r"x-(amz|goog|ms)-.*|awsaccesskeyid|googleaccessid|signature|expires|policy|key-pair-id|token|s[a-z]{1,3}", re.IGNORECASE
)
"""Names of parameters that sign an address (S3, GCS, CloudFront, Azure) and do not choose the file."""


def resolve_file_revision(uri: StorageUri) -> str | None:
    """Return what identifies the current contents, or None if the server cannot be queried. A digest needs no request."""
    if uri.sha256:  # the address names its contents
        return f"sha256:{uri.sha256}"
    try:
        with HttpClient() as client:
            return _revision(uri, _describe(uri, client, Retries(RESOLVE_POLICY)))
    except BadUri:  # a mistake in the address
        raise
    except StorageError as error:  # not fatal: the file may exist already
        if uri.query:  # the recorded address has no query, so an existing file may be the one of another query
            raise
        log.warning("the address could not be queried error=%s", error)
        return None


def fetch_file(uri: StorageUri, revision: str | None, target: Path, start_progress: StartProgress) -> Fetched:
    """Download the file into the folder `target`. Resumes an interrupted download.

    Raises InitializerError (no such file, no access, not the digest of the address), ChecksumMismatch, StorageError (the file changed,
    unreachable), NoSpace.
    """
    path = Path(unquote(uri.location.rpartition("/")[2]))
    retries = Retries(FETCH_POLICY)
    with HttpClient() as client:
        try:
            remote = _describe(uri, client, retries)
            current = _revision(uri, remote)
            if revision is not None and remote.validator and current != revision:
                raise StorageError(f"{uri} changed during the download; try again")
            check_space(target, remote.size or 0)
            on_progress = start_progress(remote.size or 0)
            if _is_complete(remote, target / path):
                on_progress(remote.size or 0)
            else:
                download(client, remote, target / path, retries, on_progress)
                with disk_errors(target):
                    sync_files([target / path])
        except HttpError as error:
            raise _converted(uri, error) from None
        except ChecksumMismatch:
            if not uri.sha256:  # then the length differs, and another try may succeed
                raise
            raise InitializerError(
                f"{uri}: the file has another SHA-256: it has changed, or the address has the wrong one"
            ) from None
    return Fetched([path], {path: uri.sha256} if uri.sha256 else {})


def _describe(uri: StorageUri, client: HttpClient, retries: Retries) -> RemoteFile:
    digest = ContentDigest("sha256", uri.sha256) if uri.sha256 else None
    return retries.call(lambda: describe(client, uri.request_url, str(uri), digest))


def _revision(uri: StorageUri, remote: RemoteFile) -> str:
    if uri.sha256:  # the address names its contents
        return f"sha256:{uri.sha256}"
    if not remote.validator:  # nothing identifies the contents: fetch them every time
        return f"unversioned:{uuid.uuid4().hex}"
    chosen = sorted((name, value) for name, value in parse_qsl(uri.query, True) if not _SIGNATURE.fullmatch(name))
    return f"http:{hashlib.sha256(repr((chosen, remote.validator, remote.size)).encode()).hexdigest()}"


def _is_complete(remote: RemoteFile, path: Path) -> bool:
    # Without a digest, a file of an earlier attempt may be another one.
    if remote.digest is None or remote.size is None or not path.is_file() or path.is_symlink():
        return False
    return remote.digest.matches(path, remote.size)


def _converted(uri: StorageUri, error: HttpError) -> Exception:
    if error.status in (404, 410):  # nothing is there to fetch
        return InitializerError(f"{uri} does not exist: the server answers with status {error.status}")
    if error.status in (401, 403):  # another try has the same rights
        return InitializerError(f"{uri}: access denied (status {error.status}); an address with a signature may have expired")
    return StorageError(f"{uri}: the server answers with status {error.status}; try again")
