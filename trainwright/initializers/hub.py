"""The Hugging Face hub as a source: pinned to a commit, with every file verified against the digest that the hub lists.

`huggingface_hub` (extra `hub`) is imported lazily. Its download alone does not detect corrupt content.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trainwright.initializers.errors import InitializerError
from trainwright.initializers.file_filter import FileFilter
from trainwright.storage.digests import file_digest
from trainwright.storage.errors import ChecksumMismatch, StorageError
from trainwright.storage.foreign_texts import without_credentials
from trainwright.storage.transfer import check_space
from trainwright.storage.uri import StorageUri

log = logging.getLogger(__name__)


def resolve_commit(uri: StorageUri, kind: str) -> str | None:
    """Return the commit of the URI's revision (default `main`), or None if the hub cannot be queried."""
    if re.fullmatch(r"[0-9a-f]{40}", uri.revision):
        return uri.revision
    try:
        return str(_info(uri, kind, uri.revision or None).sha)
    except (
        InitializerError,
        StorageError,
    ) as error:  # not fatal: only one step may have the token, and the files may exist already
        log.warning("the commit could not be resolved error=%s", error)
        return None


def fetch_repository(uri: StorageUri, file_filter: FileFilter, commit: str | None, target: Path) -> list[Path]:
    """Download the matching files of a repository at a commit and verify each. Resumes an interrupted download in `target`.

    Raises InitializerError (no access, no such repository or revision), StorageError (the hub cannot be reached), and
    ChecksumMismatch for a file whose digest differs from the hub's; the file is removed.
    """
    hub = _library()
    info = _info(uri, file_filter.kind, commit or uri.revision or None, files=True)
    siblings = [sibling for sibling in info.siblings or [] if file_filter.matches(sibling.rfilename)]
    if not siblings:
        raise InitializerError(f"{uri} has no file that matches {', '.join(file_filter.allow)}")
    check_space(target, sum(s.size or 0 for s in siblings if not (target / s.rfilename).exists()))
    with _hub_errors(uri, file_filter.kind):
        hub.snapshot_download(
            uri.location,
            repo_type=file_filter.kind,
            revision=info.sha,
            local_dir=target,
            allow_patterns=[_literal(sibling.rfilename) for sibling in siblings],
            token=_token(),
        )
    for sibling in siblings:
        _verify(target / sibling.rfilename, sibling, uri)
    return [Path(sibling.rfilename) for sibling in siblings]


def _verify(path: Path, sibling: Any, uri: StorageUri) -> None:
    """Check the SHA-256 of a large file (LFS), or git's SHA-1 of `blob SIZE\\0CONTENT` of a small one."""
    if not path.is_file():
        raise StorageError(f"{uri}: {sibling.rfilename} was not downloaded; try again")
    if sibling.lfs is not None:
        is_valid = file_digest(path) == sibling.lfs.sha256
    elif sibling.blob_id:
        content = path.read_bytes()
        is_valid = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest() == sibling.blob_id
    else:
        is_valid = True
    if not is_valid:
        path.unlink(missing_ok=True)
        raise ChecksumMismatch(
            f"{uri}: {sibling.rfilename} is corrupt (its digest differs from the hub's) and was removed; try again"
        )


def _info(uri: StorageUri, kind: str, revision: str | None, *, files: bool = False) -> Any:
    api = _library().HfApi(token=_token())
    with _hub_errors(uri, kind):
        return api.repo_info(uri.location, repo_type=kind, revision=revision, files_metadata=files)


@contextlib.contextmanager
def _hub_errors(uri: StorageUri, kind: str) -> Iterator[None]:
    """Convert client errors: InitializerError if the source is unusable, StorageError if a retry may succeed."""
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        HFValidationError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    # The base class of the errors of httpx or httpx2, depending on the version of huggingface_hub.
    transport_error: type[BaseException] = HfHubHTTPError.__bases__[0]
    try:
        yield
    except GatedRepoError:
        raise InitializerError(
            f"{uri} is gated: accept its terms on the hub, and set a token in ACCESS_TOKEN or HF_TOKEN"
        ) from None
    except RepositoryNotFoundError:
        raise InitializerError(
            f"{uri}: the hub has no such {kind}, or it is private and no token with access to it was given"
        ) from None
    except RevisionNotFoundError:
        raise InitializerError(f"{uri}: there is no revision {uri.revision!r}") from None
    except HFValidationError as error:
        raise InitializerError(f"{uri}: {without_credentials(error)}") from None
    except HfHubHTTPError as error:
        raise StorageError(f"{uri}: the hub answers: {without_credentials(error)}") from None
    except (transport_error, ConnectionError, FileNotFoundError) as error:
        raise StorageError(f"{uri}: the hub cannot be reached: {without_credentials(error)}") from None


def _literal(name: str) -> str:
    """Escape a name to a glob pattern that matches only it."""
    return re.sub(r"([*?[])", r"[\1]", name)


def _token() -> str | None:
    """Return the token from the variables of Trainer's initializers. It is never logged or stored."""
    return os.environ.get("ACCESS_TOKEN") or os.environ.get("HF_TOKEN") or None


def _library() -> Any:
    try:
        import huggingface_hub
    except ImportError as error:
        raise InitializerError("hf:// needs the package huggingface_hub: install trainwright[hub]") from error
    return huggingface_hub
