"""The digest that a file must have: SHA-256, or git's SHA-1 of a blob, which the Hugging Face Hub lists for small files."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from trainwright.storage.digests import CHUNK
from trainwright.storage.plain_files import open_plain


class Hasher(Protocol):
    """What `hashlib` returns."""

    def update(self, data: bytes | memoryview, /) -> None: ...
    def hexdigest(self) -> str: ...


@dataclass(frozen=True)
class ContentDigest:
    """`value` is hexadecimal, in lower case."""

    algorithm: Literal["sha256", "git-sha1"]
    value: str

    def hasher(self, size: int) -> Hasher:
        """Return a hasher for a file of `size` bytes: git's digest begins with the size."""
        if self.algorithm == "sha256":
            return hashlib.sha256()
        return hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)

    def matches(self, path: Path, size: int, on_chunk: Callable[[], object] = lambda: None) -> bool:
        """Whether a regular file has this size and digest. Reads it only if the size is right; `on_chunk` is called as it is read.

        Raises UnsafeFile, OSError, and what `on_chunk` raises.
        """
        with open_plain(path) as file:
            if file.seek(0, 2) != size:
                return False
            file.seek(0)
            hasher = self.hasher(size)
            while chunk := file.read(CHUNK):
                hasher.update(chunk)
                on_chunk()
        return hasher.hexdigest() == self.value
