"""Searches the lines of a spooled log, in portions of a few milliseconds: over hundreds of megabytes, the first hits come at once."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, TypedDict

from trainwright.ui.logs.line_file import Block, LineFile

WORK_SECONDS = 0.05
MAX_PATTERN = 1000
MAX_HITS = 5000
_NEEDS_SINGLE_LINES = re.compile(r"\\[AzQ]|\(\?[a-zA-Z]*-")
"""Anchors of the whole text, and flags that change those of lines: such a pattern is matched with one line at a time."""


class Hits(TypedDict):
    """`lines` are the numbers of lines with a hit, in the order of the search, which goes on at `next`; `done` if it is at the end."""

    lines: list[int]
    next: int
    done: bool


class Pattern:
    """A text, or a regular expression of RE2 in linear time, that is looked for in each line. Raises ValueError."""

    def __init__(self, text: str, *, is_expression: bool, is_case_sensitive: bool):
        import re2

        if not text or len(text) > MAX_PATTERN:
            raise ValueError(f"text: expected 1 to {MAX_PATTERN} characters to search for")
        options = re2.Options()
        options.never_nl, options.log_errors = True, False
        options.literal, options.case_sensitive = not is_expression, is_case_sensitive
        self._is_of_single_lines = is_expression and bool(_NEEDS_SINGLE_LINES.search(text))
        self._is_case_sensitive = is_case_sensitive
        self._plain = b"" if is_expression or not text.isascii() else (text if is_case_sensitive else text.lower()).encode()
        """The text, if it consists of plain bytes."""
        source = f"(?m)(?:{text})" if is_expression and not self._is_of_single_lines else text
        try:
            re2.compile(
                text.encode("utf-8", "replace"), options
            )  # alone: errors quote it, and it must not depend on what encloses it
            self._compiled: Any = re2.compile(source.encode("utf-8", "replace"), options)
        except re2.error as error:
            said = error.args[0] if error.args else error
            raise ValueError(f"text: not a regular expression: {said.decode() if isinstance(said, bytes) else said}") from None

    def lines_of(self, block: Block) -> Iterator[int]:
        """Yield the numbers of the lines of a block that match, in order."""
        if self._is_of_single_lines:
            for number, line in enumerate(block.text.split(b"\n")[: block.count]):
                if self._compiled.search(line) is not None:
                    yield block.first + number
            return
        found = self._compiled.search(block.text)
        if found is None or found.start() >= len(block.text):
            return
        yield from self._plain_lines(block) if self._plain else self._matching_lines(block)

    def _matching_lines(self, block: Block) -> Iterator[int]:
        position, number, text = 0, block.first, block.text
        while (found := self._compiled.search(text, position)) is not None and found.start() < len(text):
            number += text.count(b"\n", position, found.start())
            yield number
            position = text.index(b"\n", found.start()) + 1
            number += 1

    def _plain_lines(self, block: Block) -> Iterator[int]:
        """As `_matching_lines`: several times faster where there are many hits, and slower where there are none."""
        text = block.text if self._is_case_sensitive else block.text.lower()
        position, number = 0, block.first
        while (start := text.find(self._plain, position)) >= 0:
            number += text.count(b"\n", position, start)
            yield number
            position = text.index(b"\n", start) + 1
            number += 1


@lru_cache(maxsize=64)
def compiled(text: str, is_expression: bool, is_case_sensitive: bool) -> Pattern:
    """Return a pattern. Raises ValueError."""
    return Pattern(text, is_expression=is_expression, is_case_sensitive=is_case_sensitive)


def search_forward(file: LineFile, pattern: Pattern, start: int, end: int, *, limit: int) -> Hits:
    """Return hits from the line `start` on, before `end`, until `limit` are found or the time of a portion is over."""
    deadline, hits, end = time.monotonic() + WORK_SECONDS, Hits(lines=[], next=max(0, start), done=False), min(end, len(file))
    for block in file.blocks(start, end):
        for line in pattern.lines_of(block):
            hits["lines"].append(line)
            if len(hits["lines"]) >= limit:
                return {**hits, "next": line + 1, "done": line + 1 >= end}
        hits["next"] = block.first + block.count
        if time.monotonic() > deadline:
            break
    return {**hits, "done": hits["next"] >= end}


def search_backward(file: LineFile, pattern: Pattern, end: int, *, limit: int) -> Hits:
    """Return hits before the line `end`, the last one first; `next` is the `end` of the search that goes on."""
    deadline, hits = time.monotonic() + WORK_SECONDS, Hits(lines=[], next=min(end, len(file)), done=False)
    for block in file.blocks_backward(end):
        for line in reversed(list(pattern.lines_of(block))):
            hits["lines"].append(line)
            if len(hits["lines"]) >= limit:
                return {**hits, "next": line, "done": line == 0}
        hits["next"] = block.first
        if time.monotonic() > deadline:
            break
    return {**hits, "done": hits["next"] <= 0}
