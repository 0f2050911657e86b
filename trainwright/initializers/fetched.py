"""What a source has delivered, and which of its files are wanted. It imports no source, so that every source can import it.

A repository that was cloned without git LFS has pointers in place of its large files.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from trainwright.initializers.errors import InitializerError
from trainwright.storage.plain_files import ProgressCallback

StartProgress = Callable[[int], ProgressCallback]
"""Called with the total number of bytes; returns the callback for the bytes transferred."""
_BEGINNING = b"version https://git-lfs.github.com/spec/v1"
"""Of every pointer, by the specification of git LFS."""


@dataclass(frozen=True)
class Fetched:
    """`paths` are relative to the target. `sha256` has the digests by path that were verified on the written files.

    `details` go to the receipt: what exactly was taken, if the URI does not say it.
    """

    paths: list[Path]
    sha256: Mapping[Path, str] = field(default_factory=dict)
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class FileFilter:
    """The kind of a source, and the glob patterns of the files to fetch and to skip.

    `only`, if given, restricts them to these names. `also` has names that belong to the source beside its data.
    """

    kind: Literal["dataset", "model"]
    allow: tuple[str, ...] = ("*",)
    ignore: tuple[str, ...] = ()
    only: frozenset[str] | None = None
    also: frozenset[str] = frozenset()

    def matches(self, name: str) -> bool:
        """Whether to fetch the file. Hidden files and paths with `..` never match."""
        parts = name.split("/")
        if any(not part or part.startswith(".") for part in parts):  # a name must not lead out of the folder
            return False
        if name in self.also:  # such as the card, whatever the patterns say
            return True
        if self.only is not None and name not in self.only:  # the subset and split were chosen by name
            return False
        return _matches(parts[-1], name, self.allow) and not _matches(parts[-1], name, self.ignore)


def _matches(base: str, name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(base, pattern) or fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def refuse_pointer(path: Path, name: str) -> None:
    """Raise InitializerError for a pointer in the place of a file, which the message calls by `name`. Raises OSError."""
    with open(path, "rb") as file:
        is_pointer = file.read(len(_BEGINNING)) == _BEGINNING
    if is_pointer:
        raise InitializerError(
            f"{name} is a pointer of git LFS, and not the file itself: run `git lfs pull` where it comes from, and try again"
        )
