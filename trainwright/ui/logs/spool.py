"""The log of one run of a container, as far as it has been read: its lines, how it goes on, and who looks at it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from trainwright.ui.logs.line_file import LineFile
from trainwright.ui.logs.line_splitter import Lines

MAX_WINDOW_BYTES = 2 * 1024 * 1024
"""Bytes of the lines of one answer."""


class LogKey(NamedTuple):
    """One run of a container. `session` separates users: what one may read, another may not."""

    session: str
    namespace: str
    pod: str
    uid: str
    container: str
    restart: int


@dataclass(frozen=True)
class LogState:
    """`name` is waiting, reading, live, ended, truncated, gone, forbidden or lost; the last five are final."""

    name: str
    message: str = ""

    @property
    def is_final(self) -> bool:
        return self.name not in ("waiting", "reading", "live")


class Window(NamedTuple):
    """Consecutive lines from `start` on."""

    start: int
    stamps: list[bytes]
    texts: list[bytes]


class LogSpool:
    """One thread writes, any may read. `admit` decides whether so many more bytes may be stored; "" or why not."""

    def __init__(self, key: LogKey, admit: Callable[[LogSpool, int], str], folder: Path | None = None):
        self.key = key
        self._admit = admit
        self.texts, self._stamps = LineFile(folder), LineFile(folder)
        self._partial = b""
        self._state = LogState("reading")
        self._changed = threading.Condition()
        self.version = 0
        """Grows with every change."""
        self.used = time.monotonic()
        """When somebody last looked at it."""
        self._is_closed = False

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return self.texts.size + self._stamps.size

    def free_bytes(self) -> int:
        """Return the space that is left on its disk."""
        return self.texts.free_bytes()

    @property
    def total(self) -> int:
        """The number of lines."""
        return min(len(self.texts), len(self._stamps))

    @property
    def state(self) -> LogState:
        return self._state

    @property
    def partial(self) -> bytes:
        """The last line, if it has not ended; it is not counted."""
        return self._partial

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def touch(self) -> None:
        """Note that somebody looks at it."""
        self.used = time.monotonic()

    def append(self, lines: Lines, partial: bytes = b"") -> bool:
        """Append lines, and replace the line that has not ended. Returns False, with a final state, if there is no space."""
        if self._is_closed:
            return False
        if lines.texts:
            size = sum(map(len, lines.texts)) + sum(map(len, lines.stamps)) + 2 * len(lines.texts)
            if problem := self._admit(self, size):
                self.set_state(LogState("truncated", problem))
                return False
            try:
                self._stamps.append(lines.stamps)
                self.texts.append(lines.texts)
            except OSError as error:
                self.set_state(
                    LogState("truncated", f"the rest of the log is not shown: the server cannot store it: {error.strerror}")
                )
                return False
        if lines.texts or partial != self._partial:
            self._partial = partial
            self._notify()
        return True

    def set_state(self, state: LogState) -> None:
        """Set how the log goes on. A line that has not ended when the log does must have been appended before."""
        if state != self._state:
            self._state = state
            if state.is_final:
                self._partial = b""
            self._notify()

    def window(self, start: int, count: int) -> Window:
        """Return lines from `start` on; a negative one counts from the end. There may be fewer, if they are long."""
        total = self.total
        start = max(0, total + start) if start < 0 else start
        texts = self.texts.read(start, min(start + count, total), max_bytes=MAX_WINDOW_BYTES)
        return Window(start, self._stamps.read(start, start + len(texts), max_bytes=MAX_WINDOW_BYTES), texts)

    def stamps_backward(self) -> Iterator[bytes]:
        """Yield the timestamps from the last one on."""
        for block in self._stamps.blocks_backward(len(self._stamps)):
            yield from reversed(block.text.split(b"\n")[: block.count])

    def wait(self, version: int, seconds: float) -> None:
        """Wait up to `seconds` for a version after `version`."""
        with self._changed:
            self._changed.wait_for(lambda: self.version > version or self._is_closed, seconds)

    def close(self) -> None:
        """Give the space back; the thread that writes stops. Idempotent."""
        self._is_closed = True
        self.texts.close()
        self._stamps.close()
        self._notify()

    def _notify(self) -> None:
        with self._changed:
            self.version += 1
            self._changed.notify_all()
