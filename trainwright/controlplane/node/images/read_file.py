"""A settings file that is parsed again when it has changed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

_T = TypeVar("_T")
_Version = tuple[int, int, int]


class FileReader(Generic[_T]):
    """Parses `file`, which may be missing: then `absent` takes the place of its contents. Thread-safe."""

    def __init__(self, file: Path, parse: Callable[[Path], _T], absent: _T):
        self.file = file
        self._parse, self._absent = parse, absent
        self._contents = absent
        self._version: _Version | None = None
        self._lock = threading.Lock()

    def read(self) -> _T:
        """Return the contents. Raises what `parse` raises, each time while the file is invalid."""
        with self._lock:
            version = self._current_version()
            if version is None:
                self._contents = self._absent
            elif version != self._version:
                self._contents = self._parse(self.file)
            self._version = version  # not reached with an invalid file
            return self._contents

    def _current_version(self) -> _Version | None:
        try:
            found = self.file.stat()
        except FileNotFoundError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino
