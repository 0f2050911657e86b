"""Text from files and options, before it is parsed: one limit of size, UTF-8 without control characters, and one error.

Everything that parses such text raises `Unreadable`, so that every command says in the same way where the problem is.
"""

from __future__ import annotations

import re

from trainwright.text.one_line import one_line

MAX_BYTES = 16 * 1024 * 1024
"""More than any manifest: etcd stores objects of 1.5 MiB, and all CRDs of Kubeflow together take 4 MiB."""
MAX_DEPTH = 120
"""Nesting levels: the API server's 100 for an object, and those of a List and of `managedFields` around it."""
_CONTROL = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
"""What YAML 1.1 calls not printable; the byte order mark is accepted at the start only."""
_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
_MOST_SHOWN = 60


class Unreadable(ValueError):
    """A text that cannot be parsed; the message names the source, the line and the column (counted from 1, 0 if unknown)."""

    def __init__(self, source: str, problem: str, line: int = 0, column: int = 0):
        place = f"line {line}, column {column}" if line and not source else ""
        where = place or (f"{source}:{line}:{column}" if line else source)
        self.message = f"{where}: {problem}" if where else problem
        super().__init__(self.message)
        self.source, self.problem, self.line, self.column = source, problem, line, column


def decoded(data: str | bytes, source: str) -> str:
    """Return a text without its byte order mark.

    Raises Unreadable if it is too large, is not UTF-8, or contains control characters.
    """
    if len(data) > MAX_BYTES:
        raise too_large(source)
    try:
        text = data.decode("utf-8") if isinstance(data, bytes) else data
    except UnicodeDecodeError as error:
        raise Unreadable(source, f"not UTF-8 text (byte {error.start})") from None
    text = text.removeprefix("\ufeff")
    if found := _CONTROL.search(text):
        raise Unreadable(source, f"contains the character U+{ord(found[0]):04X}", *position(text, found.start()))
    return text


def too_large(source: str) -> Unreadable:
    """Return the error for a text above the limit, also for readers that stop there."""
    return Unreadable(source, f"larger than {MAX_BYTES // 2**20} MiB")


def position(text: str, offset: int) -> tuple[int, int]:
    """Return line and column of an offset."""
    line, start = 1, 0
    for found in _BREAK.finditer(text, 0, offset):
        line, start = line + 1, found.end()
    return line, offset - start + 1


def quoted(text: str) -> str:
    """Return a short quotation of a key for a message."""
    line = one_line(text)
    return repr(line if len(line) <= _MOST_SHOWN else f"{line[:_MOST_SHOWN]}...")
