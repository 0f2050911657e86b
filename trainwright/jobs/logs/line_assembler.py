"""Puts the lines of a log together from the chunks of a connection, in bounded memory.

A progress bar may be one line of many megabytes, and what follows it is what matters.
"""

from __future__ import annotations

from collections.abc import Iterator

from trainwright.jobs.logs.log_cursor import split_stamp


class LineAssembler:
    """Keeps at most `limit` bytes of each line: of a longer one its begin and its end, or its last redrawn state."""

    def __init__(self, limit: int):
        self._head_limit, self._tail_limit = limit - limit // 4, limit // 4
        self._head = self._tail = b""
        self._left_out = 0

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the lines that end in this chunk, without their line ends."""
        *complete, pending = chunk.split(b"\n")
        for part in complete:
            self._add(part)
            yield self._line()
            self._head = self._tail = b""
            self._left_out = 0
        self._add(pending)

    def rest(self) -> bytes:
        """Return the line that has not ended yet."""
        return self._line()

    def _add(self, part: bytes) -> None:
        space = self._head_limit - len(self._head)
        self._head += part[:space]
        if len(part) > space:
            tail = self._tail + part[space:]
            self._left_out += max(0, len(tail) - self._tail_limit)
            self._tail = tail[-self._tail_limit :]

    def _line(self) -> bytes:
        if not self._left_out:
            return self._head + self._tail
        _, _, text = split_stamp(self._head)
        stamp = self._head[: len(self._head) - len(text)]
        if (redrawn := self._tail.find(b"\r")) >= 0 and self._tail[redrawn:].strip():
            return stamp + self._tail[redrawn + 1 :]
        return self._head + b" ... (%d bytes left out) ... " % self._left_out + self._tail
