"""Texts of others in Markdown: nothing in them becomes a link, an image, HTML, or the end of a table's cell."""

from __future__ import annotations

import re
from collections.abc import Sequence

from trainwright.text.one_line import one_line

_MAX, _MAX_BLOCK = 300, 600
"""Characters of a text in a line, and in a block; longer ones are truncated."""
_SPECIAL = re.compile(r"([\\`*_{}\[\]()#+!|~<>&$:@.-])")
_RUNS = re.compile(r"`+")


def escaped(text: str, most: int = _MAX) -> str:
    """Return a text in one line of at most so many characters that Markdown shows as it is, in a table's cell, too."""
    return _SPECIAL.sub(r"\\\1", _truncated(one_line(text), most))


def escaped_advice(text: str) -> str:
    """Return a text as `escaped`, of the length of a block: what to do stands at its end."""
    return escaped(text, _MAX_BLOCK)


def code(text: str) -> str:
    """Return a text as inline code, for a table's cell, too."""
    short = _short(text)
    if not short:
        return ""
    if "|" in short or "\\" in short:  # parsers disagree about bars in the code of a cell
        return escaped(short)
    fence = "`" * (_longest_run(short) + 1)
    padding = " " if short.startswith("`") or short.endswith("`") else ""
    return f"{fence}{padding}{short}{padding}{fence}"


def fenced(text: str) -> str:
    """Return a text as a block of code, whose fence is longer than any in the text."""
    block = _truncated(text.strip("\n"), _MAX_BLOCK)
    fence = "`" * max(_longest_run(block) + 1, 3)
    return f"{fence}text\n{block}\n{fence}"


def table(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """Return a table; its cells are Markdown already."""
    lines = [header, tuple("---" for _ in header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _short(text: str) -> str:
    return _truncated(one_line(text), _MAX)


def _truncated(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 2].rstrip()} …"


def _longest_run(text: str) -> int:
    return max((len(run) for run in _RUNS.findall(text)), default=0)
