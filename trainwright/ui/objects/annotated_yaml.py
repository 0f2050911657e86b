"""An object as YAML with the contributor of each line, as the page shows it. Pure."""

from __future__ import annotations

from itertools import groupby
from typing import Any, TypedDict

from trainwright.api.objects import Obj
from trainwright.materialize.contributions import Contributors
from trainwright.text.yaml_reader import YamlDocument, read_yaml_documents
from trainwright.text.yaml_writer import to_yaml

MIXED = ""
"""The contributor of a line that opens an object or a list with parts of several contributors."""


class AnnotatedYaml(TypedDict):
    """`runs` are pairs of a number of lines and an index in `contributors`, in order; together they cover `text`."""

    text: str
    contributors: list[str]
    runs: list[tuple[int, int]]


def annotated_yaml(obj: Obj, contributors: Contributors) -> AnnotatedYaml:
    """Return an object as YAML with the contributor of each line."""
    text = to_yaml(obj)
    [document] = read_yaml_documents(text, with_lines=True)
    lines: list[str | None] = [None] * text.count("\n")
    _attribute(document, document.value, contributors, lines)
    known: list[str] = []
    filled = MIXED
    for number, contributor in enumerate(lines):  # further lines of a value have none: theirs is that of its first line
        filled = filled if contributor is None else contributor
        lines[number] = filled
        if filled not in known:
            known.append(filled)
    runs = [(len(list(group)), known.index(str(name))) for name, group in groupby(lines)]
    return AnnotatedYaml(text=text, contributors=known, runs=runs)


def _attribute(document: YamlDocument, value: Any, tree: Any, lines: list[str | None]) -> str:
    """Set the contributors of the lines of a value's parts; returns the contributor of all of them, or MIXED."""
    if not isinstance(value, dict | list) or not value:
        return str(tree)
    found: set[str] = set()
    entries = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in entries:
        contributor = _attribute(document, item, tree[key], lines)
        begins_with_its_first_entry = isinstance(value, list) and isinstance(item, dict | list) and bool(item)
        if not begins_with_its_first_entry:
            lines[document.lines[id(value)][key] - 1] = contributor
        found.add(contributor)
    return found.pop() if len(found) == 1 else MIXED
