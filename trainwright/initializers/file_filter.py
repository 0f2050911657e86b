"""Selects the files of a source. It imports no source, so that every source can import it."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from trainwright.storage.plain_files import ProgressCallback

StartProgress = Callable[[int], ProgressCallback]
"""Called with the total number of bytes; returns the callback for the bytes transferred."""


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
        if any(not part or part.startswith(".") for part in parts):
            return False
        if name in self.also:
            return True
        if self.only is not None and name not in self.only:
            return False
        return _matches(parts[-1], name, self.allow) and not _matches(parts[-1], name, self.ignore)


def _matches(base: str, name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(base, pattern) or fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
