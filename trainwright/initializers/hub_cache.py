"""The local cache of the Hugging Face libraries as a source, for machines where HF_HUB_OFFLINE is set."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainwright.initializers.errors import InitializerError
from trainwright.initializers.fetched import FileFilter, StartProgress
from trainwright.storage.errors import ChecksumMismatch, UnsafeFile
from trainwright.storage.http.download import ContentDigest
from trainwright.storage.http.hub_environment import is_set
from trainwright.storage.plain_files import folder_files, read_plain
from trainwright.storage.transfer import check_space, copy_file
from trainwright.storage.uri import StorageUri

COMMIT = re.compile(r"[0-9a-f]{40}", re.ASCII)
_DIGESTS = {40: "git-sha1", 64: "sha256"}


def is_offline(environ: Mapping[str, str]) -> bool:
    """Whether the hub must not be asked."""
    return is_set(environ, "HF_HUB_OFFLINE") or is_set(environ, "TRANSFORMERS_OFFLINE")


def hub_library(uri: StorageUri) -> Any:
    """Return the library of the hub, which takes 0.2 s to import. Raises InitializerError without the extra `hub`."""
    try:
        import huggingface_hub
        import huggingface_hub.constants
    except ImportError:
        raise InitializerError(f"{uri} needs the client of the hub: pip install 'trainwright[hub]'") from None
    return huggingface_hub


def cached_commit(uri: StorageUri, kind: str) -> str | None:
    """Return the commit of the URI's revision in the cache, or None. Raises InitializerError without the extra `hub`."""
    revision = uri.revision or "main"
    if COMMIT.fullmatch(revision):  # a commit names itself
        return revision
    if any(part in ("", ".", "..") for part in revision.split("/")):  # a revision must not lead out of the cache
        return None
    try:
        commit = read_plain(_repository(uri, kind) / "refs" / revision, 256).decode("ascii", "replace").strip()
    except (OSError, UnsafeFile):  # the cache does not have it
        return None
    return commit if COMMIT.fullmatch(commit) else None


def fetch_cached(
    uri: StorageUri, file_filter: FileFilter, commit: str | None, target: Path, start_progress: StartProgress
) -> list[Path]:
    """Copy the matching files of a cached snapshot, verified by the digests that are the names of its blobs.

    Raises InitializerError (not in the cache, no match), ChecksumMismatch, NoSpace, StorageError.
    """
    repository = _repository(uri, file_filter.kind)
    commit = commit or cached_commit(uri, file_filter.kind)
    snapshot = repository / "snapshots" / (commit or "")
    if commit is None or not snapshot.is_dir():
        raise InitializerError(f"{uri} is not in the cache {repository.parent}, and HF_HUB_OFFLINE forbids to ask the hub")
    names = _names(snapshot, uri, file_filter)
    prefix = f"{uri.folder}/" if uri.folder else ""
    for listed in _listed(uri, file_filter.kind, commit):
        name = listed.removeprefix(prefix)
        if listed.startswith(prefix) and file_filter.matches(name) and name not in names:
            raise InitializerError(f"{uri}: only a part of it is in the cache {snapshot}: {listed} is missing")
    sizes = {name: (snapshot / path).stat().st_size for name, path in names.items()}
    check_space(target, sum(sizes.values()))
    on_progress = start_progress(sum(sizes.values()))
    for name, path in names.items():
        copy_file(snapshot / path, target / name, on_progress, within=snapshot)
        blob = Path(os.path.realpath(snapshot / path)).name
        if algorithm := _DIGESTS.get(len(blob)):
            digest = ContentDigest("sha256" if algorithm == "sha256" else "git-sha1", blob)
            if not digest.matches(target / name, sizes[name]):
                (target / name).unlink(missing_ok=True)
                raise ChecksumMismatch(f"{uri}: {name} is corrupt in the cache {repository}; remove it from there")
    return [Path(name) for name in names]


def _names(snapshot: Path, uri: StorageUri, file_filter: FileFilter) -> dict[str, Path]:
    """Return the names in the target, with the paths in the snapshot."""
    found = folder_files(snapshot)
    prefix = f"{uri.folder}/" if uri.folder else ""
    names = {path.as_posix()[len(prefix) :]: path for path in found.files if path.as_posix().startswith(prefix)}
    if uri.folder and not names:
        names = {path.name: path for path in found.files if path.as_posix() == uri.folder}
    names = {name: path for name, path in names.items() if file_filter.matches(name)}
    found.require_none_refused(snapshot, lambda path: file_filter.matches(path.as_posix().removeprefix(prefix)))
    if not names:
        raise InitializerError(f"{uri} has no file that matches {', '.join(file_filter.allow)} in the cache {snapshot}")
    return names


def _listed(uri: StorageUri, kind: str, commit: str) -> list[str]:
    """Return the files of a commit as a download has recorded them: the cache may have a part. Versions before 2.4 record none."""
    import huggingface_hub
    from huggingface_hub import constants, errors

    if not hasattr(huggingface_hub, "get_cached_repo_tree"):  # a version before 2.4
        return []
    cache = constants.HF_HUB_CACHE
    try:
        tree = huggingface_hub.get_cached_repo_tree(uri.location, repo_type=kind, revision=commit, cache_dir=cache)
    except errors.CachedRepoTreeNotFoundError:  # downloaded by an earlier version
        return []
    return [file.path for file in tree]


def _repository(uri: StorageUri, kind: str) -> Path:
    return Path(hub_library(uri).constants.HF_HUB_CACHE) / f"{kind}s--{uri.location.replace('/', '--')}"
