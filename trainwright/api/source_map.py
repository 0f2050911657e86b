"""The line of every field path in a YAML file, to report the position of a problem.

The file is deliberately parsed twice: objects come from the usual loader, lines from the nodes, and only if a problem is reported.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml

from trainwright.api.paths import child, element

_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DEEPEST, _MOST = 100, 200_000
"""Maximum number of fields, because anchors can expand a short document beyond any memory."""
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


def source_maps(text: str) -> list[SourceMap]:
    """One source map for each object of the text, in the order of `load_documents`."""
    found: list[SourceMap] = []
    for node in yaml.compose_all(text, _Base):
        if node is None or node.tag == "tag:yaml.org,2002:null":
            continue
        found.extend(_of(item) for item in _objects(node))
    return found


def _objects(node: Any) -> Iterator[Any]:
    """The node, or the items of a List."""
    fields = {key.value: value for key, value in node.value} if isinstance(node, yaml.MappingNode) else {}
    kind = fields.get("kind")
    if kind is not None and kind.value == "List" and isinstance(fields.get("items"), yaml.SequenceNode):
        yield from fields["items"].value
    elif kind is None or kind.value != "List":
        yield node


def _of(node: Any) -> SourceMap:
    lines: dict[str, int] = {}
    _walk(node, "", lines, 0)
    return SourceMap(lines, node.start_mark.line + 1)


def _walk(node: Any, path: str, lines: dict[str, int], depth: int) -> None:
    if depth > _DEEPEST or len(lines) > _MOST:
        return
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            inner = child(path, str(key.value))
            lines[inner] = key.start_mark.line + 1
            _walk(value, inner, lines, depth + 1)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            inner = element(path, index)
            lines[inner] = value.start_mark.line + 1
            _walk(value, inner, lines, depth + 1)
