"""The Hugging Face hub as a source: pinned to a commit, and every file checked against the digest that the hub lists.

`huggingface_hub` (extra `hub`) is imported where it is used; its own download does not notice a flipped byte.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainwright.initializers.errors import InitializerError
from trainwright.storage.digests import file_digest
from trainwright.storage.errors import Damaged, StorageError
from trainwright.storage.transfer import check_space
from trainwright.storage.uri import StorageUri

if TYPE_CHECKING:
    from trainwright.initializers.source import Wanted

log = logging.getLogger(__name__)


def commit_of(uri: StorageUri, kind: str) -> str | None:
    """The commit that the URI's revision (default `main`) stands for; None when the hub does not say it."""
    if re.fullmatch(r"[0-9a-f]{40}", uri.revision):
        return uri.revision
    try:
        return str(_info(uri, kind, uri.revision or None).sha)
    except (InitializerError, StorageError) as error:  # what is on the disk already may do: a token may be given to one step only
        log.warning("the hub was asked in vain error=%s", error)
        return None


def fetch_repository(uri: StorageUri, wanted: Wanted, commit: str | None, target: Path) -> list[Path]:
    """Download the wanted files of a repository at a commit and verify each. Goes on from what is in `target`.

    Raises InitializerError (no access, no such repository or revision), StorageError (the hub cannot be reached),
    Damaged for a file that is not what the hub lists; it is removed.
    """
    hub = _library()
    info = _info(uri, wanted.kind, commit or uri.revision or None, files=True)
    siblings = [sibling for sibling in info.siblings or [] if wanted.takes(sibling.rfilename)]
    if not siblings:
        raise InitializerError(f"{uri} has no file that fits {', '.join(wanted.allow)}")
    check_space(target, sum(s.size or 0 for s in siblings if not (target / s.rfilename).exists()))
    with _hub_errors(uri, wanted.kind):
        hub.snapshot_download(
            uri.location,
            repo_type=wanted.kind,
            revision=info.sha,
            local_dir=target,
            allow_patterns=[_literal(sibling.rfilename) for sibling in siblings],
            token=_token(),
        )
    for sibling in siblings:
        _verify(target / sibling.rfilename, sibling, uri)
    return [Path(sibling.rfilename) for sibling in siblings]


def _verify(path: Path, sibling: Any, uri: StorageUri) -> None:
    """Large files have a SHA-256, small ones git's SHA-1 of `blob SIZE\\0CONTENT`."""
    if not path.is_file():
        raise StorageError(f"{uri}: {sibling.rfilename} did not arrive; try again")
    if sibling.lfs is not None:
        right = file_digest(path) == sibling.lfs.sha256
    elif sibling.blob_id:
        content = path.read_bytes()
        right = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest() == sibling.blob_id
    else:
        right = True
    if not right:
        path.unlink(missing_ok=True)
        raise Damaged(f"{uri}: {sibling.rfilename} arrived damaged (its digest is not the hub's) and was removed; try again")


def _info(uri: StorageUri, kind: str, revision: str | None, *, files: bool = False) -> Any:
    api = _library().HfApi(token=_token())
    with _hub_errors(uri, kind):
        return api.repo_info(uri.location, repo_type=kind, revision=revision, files_metadata=files)


@contextlib.contextmanager
def _hub_errors(uri: StorageUri, kind: str) -> Iterator[None]:
    """What the client raises as InitializerError, where the source cannot be used, or as StorageError, for trouble on the way."""
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        HFValidationError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    # The base of all errors of httpx, or of httpx2: which of them depends on the version of huggingface_hub.
    transport_error: type[BaseException] = HfHubHTTPError.__bases__[0]
    try:
        yield
    except GatedRepoError as error:
        raise InitializerError(
            f"{uri} is gated: accept its terms on the hub, and give a token in ACCESS_TOKEN or HF_TOKEN"
        ) from error
    except RepositoryNotFoundError as error:
        raise InitializerError(
            f"{uri}: the hub has no such {kind}, or it is private and no token that may read it was given"
        ) from error
    except RevisionNotFoundError as error:
        raise InitializerError(f"{uri}: there is no revision {uri.revision!r}") from error
    except HFValidationError as error:
        raise InitializerError(f"{uri}: {_first_line(error)}") from error
    except HfHubHTTPError as error:
        raise StorageError(f"{uri}: the hub answers: {_first_line(error)}") from error
    except (transport_error, ConnectionError, FileNotFoundError) as error:
        raise StorageError(f"{uri}: the hub cannot be reached: {_first_line(error)}") from error


def _literal(name: str) -> str:
    """A name as a pattern that fits only it."""
    return re.sub(r"([*?[])", r"[\1]", name)


def _token() -> str | None:
    """From the variables that Trainer's initializers know; it is never written anywhere."""
    return os.environ.get("ACCESS_TOKEN") or os.environ.get("HF_TOKEN") or None


def _library() -> Any:
    try:
        import huggingface_hub
    except ImportError as error:
        raise InitializerError("hf:// needs the package huggingface_hub: install trainwright[hub]") from error
    return huggingface_hub


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
