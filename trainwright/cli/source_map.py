"""The line of every field path in a YAML file, to report the position of a problem.

The file is deliberately parsed twice: objects come from the usual reader, and lines are only collected to report problems.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from trainwright.api.paths import child, element
from trainwright.text.text_input import Unreadable
from trainwright.text.yaml_reader import YamlDocument, read_yaml_documents

_MOST = 200_000
"""Maximum number of fields, because aliases repeat fields."""
_TAIL = re.compile(r"(\.[^.\[\]]+|\[[^\]]*\])\Z")


class SourceMap:
    """The lines of the fields of one object."""

    def __init__(self, lines: dict[str, int], first: int) -> None:
        self._lines = lines
        self.first = first

    def line(self, path: str) -> int:
        """Return the line of a field, or of its closest parent in the file."""
        while path:
            found = self._lines.get(path)
            if found is not None:
                return found
            shorter = _TAIL.sub("", path)
            path = "" if shorter == path else shorter
        return self.first


def source_maps(text: str | bytes) -> list[SourceMap]:
    """One source map for each object of the text, in the order of `load_documents`; none for JSON that is not also YAML."""
    try:
        documents = read_yaml_documents(text, with_lines=True)
    except Unreadable:
        return []
    return [found for document in documents if document.value is not None for found in _maps(document)]


def _maps(document: YamlDocument) -> Iterator[SourceMap]:
    """The map of a document, or those of the items of a List."""
    value = document.value
    if not isinstance(value, dict) or value.get("kind") != "List":
        yield _map_of(document, value, document.line)
        return
    items = value.get("items")
    for index, item in enumerate(items if isinstance(items, list) else []):
        yield _map_of(document, item, document.lines[id(items)][index])


def _map_of(document: YamlDocument, value: Any, first: int) -> SourceMap:
    lines: dict[str, int] = {}
    _walk(document, value, "", lines)
    return SourceMap(lines, first)


def _walk(document: YamlDocument, value: Any, path: str, lines: dict[str, int]) -> None:
    if not isinstance(value, dict | list) or len(lines) > _MOST:
        return
    own = document.lines[id(value)]
    for key, entry in value.items() if isinstance(value, dict) else enumerate(value):
        inner = element(path, key) if isinstance(key, int) else child(path, key)
        lines[inner] = own.get(key, document.line)
        _walk(document, entry, inner, lines)
