"""Finds the prose of a file: paragraphs without their line wraps, so that a phrase is found wherever its lines end."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator

Paragraph = list[tuple[int, str]]
"""Parts of a paragraph, each with the line that it starts on."""

# In Python 3.11, the braces of an f-string cannot contain its quote, so this expression finds the same strings and comments as
# `tokenize`, and is much faster.
_TOKEN = re.compile(
    r"""(?P<prefix>\b[rRbBuUfF]{1,2})?(?P<quote>\"{3}|'{3}|["'])(?P<body>(?:[^\\"']|\\.|(?!(?P=quote))["'])*)(?P=quote)"""
    r"""|\#(?P<comment>[^\n]*)""",
    re.DOTALL,
)
_TEST = re.compile(r"^[ \t]*(?:async )?def (test_\w*)", re.MULTILINE)
_VALUE = re.compile(r"\{[^{}]*\}")
_ESCAPE = re.compile(r"\\(.)")
_BLOCK = re.compile(r"#+ |[-*] |\||\d+\. ")
_BREAK = "\n"
_FENCE = re.compile(r"(`{3,}|~{3,})[^`]*")


class Prose:
    """The paragraphs of a file in one text, a line each, with the line of the file that each part comes from."""

    def __init__(self, paragraphs: Iterable[Paragraph]) -> None:
        self._starts: list[int] = []
        self._lines: list[int] = []
        parts: list[str] = []
        length = 0
        for paragraph in paragraphs:
            after_space = True
            for line, text in [*paragraph, (0, _BREAK)]:
                part = text if text == _BREAK else _one_space(text)
                part = part.lstrip(" ") if after_space else part
                if part:
                    self._starts.append(length)
                    self._lines.append(line)
                    parts.append(part)
                    length += len(part)
                    after_space = part[-1] in (" ", _BREAK)
        self.text = "".join(parts)

    def line_at(self, position: int) -> int:
        """Return the line of the file for a position in `text`."""
        return self._lines[bisect_right(self._starts, position) - 1]


def markdown_paragraphs(source: str) -> Iterator[Paragraph]:
    """Yield paragraphs, items of lists, rows of tables and headings; code fences are left out."""
    paragraph: Paragraph = []
    fence = ""
    for number, line in enumerate(source.splitlines(), start=1):
        stripped = line.strip()
        opened = _FENCE.fullmatch(stripped)
        if fence or opened or not stripped or _BLOCK.match(stripped):
            if paragraph:
                yield paragraph
            paragraph = []
        if fence:
            if opened and opened[1] == stripped and stripped.startswith(fence):
                fence = ""
        elif opened:
            fence = opened[1]
        elif stripped:
            paragraph.append((number, f"{stripped} "))
    if paragraph:
        yield paragraph


def python_paragraphs(source: str, *, only_docstrings: bool) -> Iterator[Paragraph]:
    """Yield comments and string literals that contain a space; with `only_docstrings`, no other strings.

    Comments on adjacent lines are one paragraph, and so are adjacent strings.
    """
    paragraph: Paragraph = []
    was_comment = False
    line, end = 1, 0
    for token in _TOKEN.finditer(source):
        between = source[end : token.start()]
        line, end = line + between.count("\n"), token.end()
        is_comment = token["quote"] is None
        # A blank line separates comments, but not strings.
        continues = was_comment == is_comment and not between.strip() and not (is_comment and between.count("\n") > 1)
        if paragraph and not continues:
            yield paragraph
            paragraph = []
        was_comment = is_comment
        if is_comment:
            paragraph.append((line, f"{token['comment']} "))
        elif " " in token[0] and (not only_docstrings or _is_docstring(source, token)):
            paragraph.extend(_string(line, token))
        line += token[0].count("\n")
    if paragraph:
        yield paragraph


def test_names(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the name of each test function."""
    line, end = 1, 0
    for found in _TEST.finditer(source):
        line, end = line + source.count("\n", end, found.start(1)), found.start(1)
        yield line, found[1]


def _is_docstring(source: str, token: re.Match[str]) -> bool:
    """Return whether a string in three quotes is a statement: it begins a line, and the code above is complete."""
    if len(token["quote"]) == 1:
        return False
    start = source.rfind("\n", 0, token.start()) + 1
    above = source[max(0, start - 1000) : start].rstrip()
    return not source[start : token.start()].strip() and above[-1:] not in set("([{,=+%\\")


def _string(line: int, token: re.Match[str]) -> Iterator[tuple[int, str]]:
    prefix = (token["prefix"] or "").lower()
    if "b" in prefix:
        return
    *lines, last = token["body"].split("\n")
    for number, text in enumerate([*(f"{one} " for one in lines), last], start=line):
        if "r" not in prefix:
            text = _ESCAPE.sub(lambda found: " " if found[1] in "nrt" else found[1], text)
        if "f" in prefix:
            text = _VALUE.sub("{}", text)
        yield number, text if text.strip() or not lines else _BREAK


def _one_space(text: str) -> str:
    """Return the text without backticks and with one space for each gap, one at its ends included."""
    words = " ".join(text.replace("`", "").split())
    return f"{' ' * text[:1].isspace()}{words}{' ' * (bool(words) and text[-1:].isspace())}"
