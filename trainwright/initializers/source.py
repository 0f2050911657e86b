"""Fetching what a URI names into a folder, verified: from this machine's disk, the Hugging Face hub, or an S3 store."""

from __future__ import annotations

import fnmatch
import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from trainwright.initializers.errors import InitializerError
from trainwright.storage.digests import Advance, file_digest, files_below
from trainwright.storage.transfer import check_space, copy_file
from trainwright.storage.uri import StorageUri

Announce = Callable[[int], Advance]


@dataclass(frozen=True)
class Wanted:
    """What to take of a source: a dataset or a model, the patterns of file names, and those to leave out."""

    kind: Literal["dataset", "model"]
    allow: tuple[str, ...] = ("*",)
    ignore: tuple[str, ...] = ()

    def takes(self, name: str) -> bool:
        """Hidden files never, and nothing that leads out of the folder it is below."""
        parts = name.split("/")
        if any(not part or part.startswith(".") for part in parts):
            return False
        return _matches(parts[-1], name, self.allow) and not _matches(parts[-1], name, self.ignore)


def revision_of(uri: StorageUri, wanted: Wanted) -> str | None:
    """What the URI stands for now: a commit of the hub, or a digest over names, sizes and times (S3: ETags) of files.

    None when the source cannot be asked from here: a receipt then has to do. Raises InitializerError, OSError.
    """
    if uri.scheme == "file":
        if not uri.path.exists():
            return None
        return f"stat:{_stat_digest(uri.path, wanted)}"
    if uri.scheme == "s3":
        from trainwright.initializers.s3 import objects_revision

        return objects_revision(uri, wanted)
    from trainwright.initializers.hub import commit_of

    return commit_of(uri, wanted.kind)


def fetch(uri: StorageUri, wanted: Wanted, revision: str | None, target: Path, announce: Announce) -> list[Path]:
    """Bring the wanted files into `target`; returns their paths relative to it. `revision` is that of `revision_of`.

    What is in `target` from before is gone on from. Raises InitializerError where there is nothing to fetch, StorageError,
    NoSpace, OSError.
    """
    if uri.scheme == "hf":
        from trainwright.initializers.hub import fetch_repository

        return fetch_repository(uri, wanted, revision, target)
    if uri.scheme == "s3":
        from trainwright.initializers.s3 import fetch_objects

        return fetch_objects(uri, wanted, revision, target, announce)
    source = uri.path
    if not source.exists():
        raise InitializerError(f"{uri} does not exist")
    paths = _local_files(source, wanted)
    if not paths:
        raise InitializerError(f"{uri} has no file that fits {', '.join(wanted.allow)}")
    root = source if source.is_dir() else source.parent
    sizes = {path: (root / path).stat().st_size for path in paths}
    check_space(target, sum(size for path, size in sizes.items() if not _has(target / path, size)))
    advance = announce(sum(sizes.values()))
    for path, size in sizes.items():
        if _has(target / path, size) and file_digest(target / path) == file_digest(root / path):
            advance(size)
        else:
            copy_file(root / path, target / path, advance)  # no link: the source may change or go while training reads
    return paths


def _local_files(source: Path, wanted: Wanted) -> list[Path]:
    if not source.is_dir():
        return [Path(source.name)]
    return [path for path in files_below(source) if wanted.takes(path.as_posix())]


def _has(path: Path, size: int) -> bool:
    return path.is_file() and path.stat().st_size == size


def _stat_digest(source: Path, wanted: Wanted) -> str:
    root = source if source.is_dir() else source.parent
    digest = hashlib.sha256()
    for path in _local_files(source, wanted):
        stat = os.stat(root / path)
        digest.update(os.fsencode(path) + f"\0{stat.st_size}\0{stat.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def _matches(base: str, name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(base, pattern) or fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
