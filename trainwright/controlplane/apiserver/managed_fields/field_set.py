"""Field sets in the FieldsV1 format of `managedFields`: trees whose keys are path elements.

`f:spec` is a field, `k:{"name":"main"}` an element of a keyed list, `v:"x"` an element of a set. A node without children is a
member of the set; a node with children only if it has the key `.`. At the root `{}` is the empty set. Operations return new sets.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeGuard

import orjson

Fields = dict[str, Any]
MEMBER = "."


def are_fields(value: Any) -> TypeGuard[Fields]:
    """Whether a value from a client is valid FieldsV1."""
    if not isinstance(value, dict):
        return False
    return all(inner == {} if key == MEMBER else _is_element(key) and are_fields(inner) for key, inner in value.items())


def _is_element(key: str) -> bool:
    sort, _, rest = key.partition(":")
    if sort in ("f", "i"):
        return rest.isdecimal() if sort == "i" else bool(rest)
    try:
        value = orjson.loads(rest)
    except ValueError:  # no value, so no key of FieldsV1
        return False
    return sort == "v" or (sort == "k" and isinstance(value, dict))


def is_member(node: Fields) -> bool:
    """Whether the node itself is in the set, not only its children."""
    return not node or MEMBER in node


def as_member(node: Fields | None) -> Fields:
    """The node with the node itself as a member."""
    return {**node, MEMBER: {}} if node else {}


def union(one: Fields, other: Fields) -> Fields:
    """The members of either set."""
    if not one or not other:
        return one or other
    joined = dict(one)
    for key, node in other.items():
        mine = joined.get(key)
        joined[key] = node if mine is None else _joined(mine, node)
    return joined


def difference(one: Fields, other: Fields) -> Fields:
    """The members of the first set that are not in the second."""
    left = {}
    for key, node in one.items():
        taken = other.get(key)
        rest = node if taken is None else _without(node, taken)
        if rest is not None:
            left[key] = rest
    return left


def intersection(one: Fields, other: Fields) -> Fields:
    """The members of both sets."""
    common = {}
    for key, node in one.items():
        theirs = other.get(key)
        both = None if theirs is None else _common(node, theirs)
        if both is not None:
            common[key] = both
    return common


def paths(fields: Fields) -> Iterator[tuple[str, ...]]:
    """The path of every member."""
    for key in sorted(fields.keys() - {MEMBER}):
        node = fields[key]
        if is_member(node):
            yield (key,)
        for rest in paths(node):
            yield (key, *rest)


def shown(path: tuple[str, ...]) -> str:
    """Format a path for messages: `.spec.containers[name="main"].image`."""
    return "".join(_shown(element) for element in path)


def _shown(element: str) -> str:
    sort, _, rest = element.partition(":")
    if sort == "f":
        return f".{rest}"
    if sort == "k":
        pairs = orjson.loads(rest)
        return "[" + ",".join(f"{key}={orjson.dumps(value).decode()}" for key, value in pairs.items()) + "]"
    return f"[={rest}]" if sort == "v" else f"[{rest}]"


def _children(node: Fields) -> Fields:
    return {key: inner for key, inner in node.items() if key != MEMBER} if MEMBER in node else node


def _node(member: bool, children: Fields) -> Fields | None:
    if not children:
        return {} if member else None
    return {**children, MEMBER: {}} if member else children


def _joined(one: Fields, other: Fields) -> Fields:
    return _node(is_member(one) or is_member(other), union(_children(one), _children(other))) or {}


def _without(one: Fields, other: Fields) -> Fields | None:
    return _node(is_member(one) and not is_member(other), difference(_children(one), _children(other)))


def _common(one: Fields, other: Fields) -> Fields | None:
    return _node(is_member(one) and is_member(other), intersection(_children(one), _children(other)))
