"""Finds pointers of git LFS: small texts that stand for large files in a repository that was cloned without them."""

from __future__ import annotations

from pathlib import Path

from trainwright.initializers.errors import InitializerError

_BEGINNING = b"version https://git-lfs.github.com/spec/v1"
"""Of every pointer, by the specification of git LFS."""


def refuse_pointer(path: Path, name: str) -> None:
    """Raise InitializerError for a pointer in the place of a file, which the message calls by `name`. Raises OSError."""
    with open(path, "rb") as file:
        is_pointer = file.read(len(_BEGINNING)) == _BEGINNING
    if is_pointer:
        raise InitializerError(
            f"{name} is a pointer of git LFS, and not the file itself: run `git lfs pull` where it comes from, and try again"
        )
