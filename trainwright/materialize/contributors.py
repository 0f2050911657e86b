"""Who set each value of an object: a tree of names beside the object, kept up to date as the object changes. Pure.

Elements of lists are matched by their merge key, so that an inserted element changes nothing about the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Any

import orjson

from trainwright.api.schema.types import ANY_VALUE, ListOf, Schema, part_of

Contributors = str | dict[str, Any] | list[Any]
"""Shaped like the object: the contributors of its parts, or the name of one for a value. An empty dict or list is a value."""
_MOST_ALIGNED = 2000
"""Elements of lists without merge keys that are aligned with their earlier version; aligning takes quadratic time."""


class MarkedText(str):
    """A text that knows its contributor. It remains marked while it is passed on; every text that is derived from it is not."""

    contributor: str


class MarkedNumber(int):
    """A whole number that knows its contributor, see `MarkedText`."""

    contributor: str


def mark(value: Any, contributor: str) -> Any:
    """Return a copy of a JSON-shaped value in which texts and whole numbers are marked; those that are marked keep their marks."""
    if isinstance(value, dict):
        return {key: mark(item, contributor) for key, item in value.items()}
    if isinstance(value, list):
        return [mark(item, contributor) for item in value]
    if isinstance(value, bool | MarkedText | MarkedNumber) or not isinstance(value, str | int):
        return value
    marked = MarkedText(value) if isinstance(value, str) else MarkedNumber(value)
    marked.contributor = contributor
    return marked


def contributor_of(value: Any, otherwise: str) -> str:
    """Return the contributor that a value is marked with."""
    return value.contributor if isinstance(value, MarkedText | MarkedNumber) else otherwise


def all_from(contributor: str, value: Any, schema: Schema = ANY_VALUE) -> Contributors:
    """Return the tree of a value of `schema` that one contributor made, from values that may be marked."""
    if isinstance(value, dict) and value:
        return {key: all_from(contributor, item, part_of(schema, key)) for key, item in value.items()}
    if isinstance(value, list) and value:
        return [all_from(_contributor_of_element(item, schema, contributor), item, _item(schema)) for item in value]
    return contributor_of(value, contributor)


def updated(tree: Contributors, before: Any, after: Any, contributor: str, schema: Schema = ANY_VALUE) -> Contributors:
    """Return the tree of a value after a change by one contributor: changed and marked parts are attributed anew.

    Args:
        tree: the contributors of `before`.
        before: the value before the change.
        after: the value after it, whose texts and numbers may be marked.
        contributor: who changed it.
        schema: the schema of the value, which has the merge keys of lists.
    """
    if isinstance(after, dict) and isinstance(before, dict) and after and before:
        assert isinstance(tree, dict)
        return {
            key: updated(tree[key], before[key], item, contributor, part_of(schema, key))
            if key in before
            else all_from(contributor, item, part_of(schema, key))
            for key, item in after.items()
        }
    if isinstance(after, list) and isinstance(before, list) and after and before:
        assert isinstance(tree, list)
        return _updated_list(tree, before, after, contributor, schema)
    if isinstance(tree, str) and type(after) in (type(before), MarkedText, MarkedNumber) and after == before:
        return contributor_of(after, tree)
    return all_from(contributor, after, schema)


def _updated_list(tree: list[Any], before: list[Any], after: list[Any], contributor: str, schema: Schema) -> list[Any]:
    found: list[Any] = []
    for item, origin in zip(after, _origins(before, after, _merge_key(schema)), strict=True):
        by = _contributor_of_element(item, schema, contributor)
        if origin is None or by != contributor:  # new, or replaced by an element with a marked key
            found.append(all_from(by, item, _item(schema)))
        else:
            found.append(updated(tree[origin], before[origin], item, contributor, _item(schema)))
    return found


def _contributor_of_element(item: Any, schema: Schema, otherwise: str) -> str:
    """Return who made an element of a list: who made its merge key, since nobody makes the key alone."""
    key = _merge_key(schema)
    return contributor_of(item.get(key), otherwise) if key and isinstance(item, dict) else otherwise


def _merge_key(schema: Schema) -> str:
    return schema.merge_key or "" if isinstance(schema, ListOf) else ""


def _item(schema: Schema) -> Schema:
    return schema.item if isinstance(schema, ListOf) else ANY_VALUE


def _origins(before: list[Any], after: list[Any], key: str) -> list[int | None]:
    """Return for each element of `after` its index in `before`, or None for a new one."""
    earlier, later = _keys(before, key), _keys(after, key)
    if earlier is not None and later is not None:
        index = {value: position for position, value in enumerate(earlier)}
        return [index.get(value) for value in later]
    if max(len(before), len(after)) > _MOST_ALIGNED:
        return [position if position < len(before) else None for position in range(len(after))]
    origins: list[int | None] = [None] * len(after)
    matcher = SequenceMatcher(None, _contents(before), _contents(after), autojunk=False)
    for operation, start, end, later_start, later_end in matcher.get_opcodes():
        if operation == "equal" or (operation == "replace" and end - start == later_end - later_start):
            origins[later_start:later_end] = range(start, end)
    return origins


def _keys(items: list[Any], key: str) -> list[Any] | None:
    """Return the merge keys of all elements, or None if one has none or two have the same."""
    if not key or not all(isinstance(item, dict) and isinstance(item.get(key), str | int) for item in items):
        return None
    keys = [item[key] for item in items]
    return keys if len(set(keys)) == len(keys) else None


def _contents(items: list[Any]) -> Sequence[bytes]:
    return [orjson.dumps(item, option=orjson.OPT_SORT_KEYS) for item in items]
