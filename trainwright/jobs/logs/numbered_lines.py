"""Joins what a program has printed in numbered parts, a line each, among the lines of other programs. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable


def numbered_line(mark: str) -> re.Pattern[str]:
    """Return the pattern of a part: `MARK NUMBER/COUNT TEXT`, where the text is of base64."""
    return re.compile(rf"{re.escape(mark)} (\d{{1,4}})/(\d{{1,4}}) ([A-Za-z0-9+/=]*)")


def joined_parts(pattern: re.Pattern[str], lines: Iterable[str], decode: Callable[[str], bytes] = str.encode) -> bytes | None:
    """Return the parts that were printed last, decoded and joined; None if there are none, or some are missing.

    What `decode` refuses with ValueError was not printed by the program, and what came before it does not count.
    """
    parts: dict[int, bytes] = {}
    count = 0
    for text in lines:
        if (match := pattern.search(text)) is None:
            continue
        number, total = int(match[1]), int(match[2])
        if number == 1 or total != count:
            parts, count = {}, total
        try:
            parts[number] = decode(match[3])
        except ValueError:
            parts, count = {}, 0
    if not count or sorted(parts) != list(range(1, count + 1)):
        return None
    return b"".join(parts[number] for number in sorted(parts))
