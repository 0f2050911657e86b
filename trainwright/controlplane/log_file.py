"""The control plane's log file: bounded in size, readable only by its owner, and the target of stdout and stderr, too.

What other libraries and the interpreter print ends up in the same file, also after it was rotated.
"""

from __future__ import annotations

import logging
import os
import sys
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import IO

MAX_BYTES = 10 * 1024 * 1024
"""Size from which the file is continued in a new one, as the logs of containers."""
FILES = 3
"""The current file and its predecessors, `.1` being the latest."""


class LogFile(RotatingFileHandler):
    """A log handler that rotates its file. With `redirects`, stdout and stderr of the process follow to the new file."""

    def __init__(self, path: Path, *, redirects: bool, max_bytes: int = MAX_BYTES):
        self._redirects = redirects
        super().__init__(path, maxBytes=max_bytes, backupCount=FILES - 1, encoding="utf-8", errors="backslashreplace")

    def _open(self) -> TextIOWrapper:
        return open(self.baseFilename, "a", encoding=self.encoding, errors=self.errors, opener=_private)

    def doRollover(self) -> None:  # noqa: N802 - the name of logging
        """Start a new file; removes the oldest."""
        super().doRollover()
        if self._redirects and self.stream is not None:
            for output in (sys.stdout, sys.stderr):
                os.dup2(self.stream.fileno(), output.fileno())


def log_handler(path: Path) -> logging.Handler:
    """The handler of a control plane: rotates the file if stderr is redirected to it, otherwise writes to stderr."""
    if path.exists() and os.path.samestat(os.fstat(sys.stderr.fileno()), os.stat(path)):
        return LogFile(path, redirects=True)
    return logging.StreamHandler(sys.stderr)


def open_log(path: Path) -> IO[bytes]:
    """Open the log file for the output of a new control plane; rotated first if it is full."""
    if path.exists() and path.stat().st_size >= MAX_BYTES:
        handler = LogFile(path, redirects=False)
        handler.doRollover()
        handler.close()
    return open(path, "ab", opener=_private)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
