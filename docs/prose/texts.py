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
# Code fences and HTML comments. A fence that is not closed hides nothing.
_HIDDEN = re.compile(
    r"^[> \t]*(?P<fence>`{3,}|~{3,})(?![`~])[^`\n]*\n(?:.*\n)*?[> \t]*(?P=fence)[`~]*[ \t]*$|<!--(?:.|\n)*?-->",
    re.MULTILINE,
)
_MARKUP = re.compile(r"(?P<ticks>`+)(?P<code>[^`\n]+)(?P=ticks)|`|\*+|\[|\](?:\([^)\s]*\))?")
_CONTEXT = 3
"""Words on each side of a phrase that its excerpt shows."""


class Prose:
    """The paragraphs of a file in one text, a line each, without backticks, asterisks and the targets of links."""

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
        self._marked = "".join(parts)
        # Where the pieces between markup start, here and in the marked text, and whether they are code.
        self._pieces: list[tuple[int, int, bool]] = []
        parts, length = [], 0
        for start, end, is_code in _pieces(self._marked):
            self._pieces.append((length, start, is_code))
            parts.append(self._marked[start:end])
            length += end - start
        self.text = "".join(parts)

    def line_at(self, position: int) -> int:
        """Return the line of the file for a position in `text`."""
        return self._lines[bisect_right(self._starts, self._marked_position(position)) - 1]

    def is_code(self, start: int, end: int) -> bool:
        """Return whether a part of `text` is inline code from start to end."""
        piece = self._piece(start)
        return piece[2] and piece == self._piece(end - 1)

    def excerpt(self, start: int, end: int) -> str:
        """Return a part of `text` with the words and the markup around it, but without backticks."""
        start, end, text = self._marked_position(start), self._marked_position(end - 1) + 1, self._marked
        before = text[text.rfind("\n", 0, start) + 1 : start].rsplit(" ", _CONTEXT + 1)[-_CONTEXT - 1 :]
        after = text[end : text.index("\n", end)].split(" ", _CONTEXT + 1)[: _CONTEXT + 1]
        return f"{' '.join(before)}{text[start:end]}{' '.join(after)}".replace("`", "").strip()

    def _marked_position(self, position: int) -> int:
        start, marked, _ = self._piece(position)
        return marked + position - start

    def _piece(self, position: int) -> tuple[int, int, bool]:
        return self._pieces[bisect_right(self._pieces, position, key=lambda piece: piece[0]) - 1]


def plain(text: str) -> str:
    """Return a line of text in lower case and without markup, to compare it."""
    return " ".join(_MARKUP.sub("", text.replace("`", "")).lower().split())


def markdown_paragraphs(source: str) -> Iterator[Paragraph]:
    """Yield paragraphs, items of lists, rows of tables and headings; code fences and HTML comments are left out."""
    paragraph: Paragraph = []
    visible = _HIDDEN.sub(lambda found: "\n" * found[0].count("\n"), source)
    for number, line in enumerate(visible.splitlines(), start=1):
        stripped = line.strip().lstrip("> ")
        if paragraph and (not stripped or _BLOCK.match(stripped)):
            yield paragraph
            paragraph = []
        if stripped:
            paragraph.append((number, f"{stripped} "))
    if paragraph:
        yield paragraph


def python_paragraphs(source: str, *, only_docstrings: bool) -> Iterator[Paragraph]:
    """Yield comments and string literals; with `only_docstrings`, no other strings.

    Comments on adjacent lines are one paragraph, and so are adjacent strings.
    """
    comments: Paragraph = []
    strings: Paragraph = []
    line, end, depth = 1, 0, 0
    for token in _TOKEN.finditer(source):
        between = source[end : token.start()]
        line, end, code = line + between.count("\n"), token.end(), between.strip()
        depth += sum(map(between.count, "([{")) - sum(map(between.count, ")]}"))
        is_comment = token["quote"] is None
        # Neither a blank line nor a comment separates strings.
        if strings and code:
            yield strings
            strings = []
        if comments and (code or not is_comment or between.count("\n") > 1):
            yield comments
            comments = []
        if is_comment:
            comments.append((line, f"{token['comment']} "))
        else:
            begins_line = not source[source.rfind("\n", 0, token.start()) + 1 : token.start()].strip()
            if not only_docstrings or (begins_line and not depth and not code.endswith("\\")):
                strings.extend(_string(line, token))
        line += token[0].count("\n")
    yield from (paragraph for paragraph in (strings, comments) if paragraph)


def test_names(source: str) -> Iterator[Paragraph]:
    """Yield the name of each test function."""
    line, end = 1, 0
    for found in _TEST.finditer(source):
        line, end = line + source.count("\n", end, found.start(1)), found.start(1)
        yield [(line, found[1])]


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
    """Return the text with one space for each gap, one at its ends included."""
    words = " ".join(text.split())
    return f"{' ' * text[:1].isspace()}{words}{' ' * (bool(words) and text[-1:].isspace())}"


def _pieces(marked: str) -> Iterator[tuple[int, int, bool]]:
    """Yield start and end of each piece between markup, and whether it is inline code."""
    end = 0
    for mark in _MARKUP.finditer(marked):
        yield end, mark.start(), False
        if mark["code"]:
            yield *mark.span("code"), True
        end = mark.end()
    yield end, len(marked), False
