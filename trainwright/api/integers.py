"""Integers in labels, annotations and text fields, which any client may write.

Python's `isdigit` accepts digits that `int` does not, `int` accepts more than Kubernetes does, and fails from 4,300 digits on.
"""

from __future__ import annotations

import re

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
