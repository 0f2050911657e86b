"""Integers in labels, annotations and text fields, which any client may write, and sets of completion indexes such as `0,2-4`.

Python's `isdigit` accepts digits that `int` does not, `int` accepts more than Kubernetes does, and fails from 4,300 digits on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_INTEGER = re.compile(r"[+-]?[0-9]{1,100}", re.ASCII)
"""Leading zeros are allowed, in a length that is parsed at once."""


def parse_int64(text: str) -> int | None:
    """The number that Go's `strconv.ParseInt(text, 10, 64)` reads; None for a text that is none, or out of range."""
    if not _INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None


def parse_count(text: str) -> int | None:
    """A number of at least zero, written without a sign; None for any other text."""
    return parse_int64(text) if text[:1] not in ("+", "-") else None


def indexes_text(indexes: Iterable[int]) -> str:
    """Format indexes. Intervals of three or more are written `a-b`, two consecutive ones `a,b`."""
    parts: list[str] = []
    run: list[int] = []
    for index in [*sorted(set(indexes)), None]:
        if run and index is not None and index == run[-1] + 1:
            run.append(index)
            continue
        if run:
            parts.append(f"{run[0]}-{run[-1]}" if len(run) > 2 else ",".join(map(str, run)))
        run = [index] if index is not None else []
    return ",".join(parts)


def parse_indexes(text: str | None, completions: int) -> set[int]:
    """Parse a text of indexes below `completions`; empty for an empty text.

    Anyone with write access to the status can write the text. Like the Job controller, ignores intervals that are not numbers,
    and cuts those that exceed `completions`.
    """
    indexes: set[int] = set()
    for part in filter(None, (text or "").split(",")):
        first, _, last = part.partition("-")
        begin, end = parse_count(first), parse_count(last or first)
        if begin is not None and end is not None:
            indexes.update(range(begin, min(end + 1, completions)))
    return indexes
