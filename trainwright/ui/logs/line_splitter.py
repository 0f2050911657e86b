"""Cuts the chunks of a log with timestamps into lines as a terminal would show them, at hundreds of megabytes per second. Pure.

A progress bar that is redrawn with carriage returns is one line, in its last state; colours and cursor movements are left out; of a
very long line the begin and the end are kept.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from trainwright.jobs.logs.kubelet_messages import is_kubelet_message
from trainwright.jobs.logs.line_assembler import LineAssembler
from trainwright.jobs.logs.log_cursor import split_stamp

MAX_LINE_BYTES = 16 * 1024
_STAMP = re.compile(rb"\n(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)) ")
_SEQUENCE = re.compile(
    rb"""
      \x1b\[[0-?]*+[\x20-/]*+[@-~]?                         # colours, cursor and screen
    | \x1b[\]PX^_][^\x07\x1b\n]*+(?:\x07|\x1b\\)?           # titles, links, clipboard, device control
    | \x1b[\x20-/]*+[0-~]?                                  # other escape sequences
    """,
    re.VERBOSE,
)


class Lines(NamedTuple):
    """Lines and their timestamps, in parallel; a timestamp is empty where the log has none."""

    stamps: list[bytes]
    texts: list[bytes]


class LineSplitter:
    """Splits one connection to a log. Keeps at most about MAX_LINE_BYTES of a line that has not ended."""

    def __init__(self) -> None:
        self._pending = LineAssembler(MAX_LINE_BYTES)

    def feed(self, chunk: bytes) -> Lines:
        """Return the lines that end in this chunk."""
        first, newline, rest = chunk.partition(b"\n")
        begun = list(self._pending.feed(first + newline))
        if not newline:
            return Lines([], [])
        complete, newline, pending = rest.rpartition(b"\n")
        list(self._pending.feed(pending))
        return _lines(begun[0] + b"\n" + complete + newline)

    def rest(self) -> Lines:
        """Return the line that has not ended yet, if there is one."""
        pending = self._pending.rest()
        return _lines(pending + b"\n") if pending else Lines([], [])


def _lines(block: bytes) -> Lines:
    """Return the lines of a block that ends with a line feed."""
    pieces = _STAMP.split(b"\n" + block[:-1])
    stamps, texts = pieces[1::2], pieces[2::2]
    if pieces[0] or len(texts) != block.count(b"\n"):  # some lines have no timestamp
        stamps, texts = _lines_one_by_one(block)
    if b"\r" in block:
        texts = [_last_state(text) if b"\r" in text else text for text in texts]
    if b"\x1b" in block:
        texts = [_SEQUENCE.sub(b"", text) if b"\x1b" in text else text for text in texts]
    if texts and max(map(len, texts)) > MAX_LINE_BYTES:
        texts = [_cut(text) if len(text) > MAX_LINE_BYTES else text for text in texts]
    return Lines(stamps, texts)


def _lines_one_by_one(block: bytes) -> Lines:
    found = Lines([], [])
    for line in block[:-1].split(b"\n"):
        stamp, shown, text = split_stamp(line)
        if stamp is not None or not is_kubelet_message(line):
            found.stamps.append(shown)
            found.texts.append(text)
    return found


def _last_state(text: bytes) -> bytes:
    """Return the last state of a line that was redrawn."""
    end = len(text)
    while end >= 0:
        begin = text.rfind(b"\r", 0, end) + 1
        if text[begin:end].strip():
            return text[begin:end].rstrip()
        end = begin - 1
    return b""


def _cut(text: bytes) -> bytes:
    [line] = LineAssembler(MAX_LINE_BYTES).feed(text + b"\n")
    return line
