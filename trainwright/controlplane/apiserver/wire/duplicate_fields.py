"""Finds duplicate fields in JSON bodies for field validation; JSON parsers silently keep the last value."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import orjson

from trainwright.api.paths import child, element


class _Pairs(list[tuple[str, Any]]):
    """A JSON object as key-value pairs, duplicates included."""


def duplicate_fields(body: bytes, content: Any) -> list[str]:
    """The paths of duplicate fields in document order; empty if the body is not JSON.

    `content` is the parsed body.
    """
    # Fast path: equal numbers of quotes mean no duplicates, unless the body has escapes, whose quotes cannot be compared.
    if b"\\" not in body and body.count(b'"') == orjson.dumps(content).count(b'"'):
        return []
    found = False

    def pairs(entries: list[tuple[str, Any]]) -> _Pairs:
        nonlocal found
        found = found or len({key for key, _ in entries}) < len(entries)
        return _Pairs(entries)

    try:
        content = json.loads(body, object_pairs_hook=pairs)
    except (ValueError, RecursionError):
        return []
    return list(dict.fromkeys(_duplicates(content, ""))) if found else []


def _duplicates(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, _Pairs):
        seen: set[str] = set()
        for key, inner in value:
            if key in seen:
                yield child(path, key)
            seen.add(key)
            yield from _duplicates(inner, child(path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _duplicates(inner, element(path, index))
