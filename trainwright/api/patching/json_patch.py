"""JSON patch (RFC 6902) and JSON merge patch (RFC 7386).

The API server deviates from the first in two ways: `replace` adds a missing key, and an absent `value` is null. In a merge patch
values replace, null removes, and lists are replaced as a whole.
"""

from __future__ import annotations

from typing import Any

import orjson

from trainwright.api.integers import parse_count


class PatchFailed(ValueError):
    """An operation failed: it is unknown, its pointer does not resolve, or a `test` failed."""


def apply_json_patch(document: Any, operations: list[Any], *, copied_at_most: int | None = None) -> Any:
    """Return a new value: `document` after all operations, in order.

    `copied_at_most` limits the bytes of JSON that `copy` may add, because each copy could double the document.
    Raises PatchFailed; then nothing has changed.
    """
    patched, copied = _copy(document), 0
    for number, operation in enumerate(operations):
        if (
            not isinstance(operation, dict)
            or not isinstance(operation.get("op"), str)
            or not isinstance(operation.get("path"), str)
        ):
            raise PatchFailed(f"operation {number}: op and path are required")
        try:
            if operation["op"] == "copy" and copied_at_most is not None:
                copied += _size_of_copy(patched, operation)
                if copied > copied_at_most:
                    raise PatchFailed(f"the copies would take {copied} bytes, {copied_at_most} are allowed")
            patched = _apply(patched, operation)
        except PatchFailed as error:
            raise PatchFailed(f"operation {number} ({operation['op']} {operation['path']}): {error}") from error
    return patched


def _apply(document: Any, operation: dict[str, Any]) -> Any:
    verb, path = operation["op"], _pointer(operation["path"])
    match verb:
        case "add":
            return _add(document, path, _copy(operation.get("value")))
        case "replace":
            if not path:
                return _copy(operation.get("value"))
            holder = _at(document, path[:-1])
            if isinstance(holder, list):
                holder[_index(holder, path[-1])] = _copy(operation.get("value"))
                return document
            return _add(document, path, _copy(operation.get("value")))
        case "remove":
            return _remove(document, path)
        case "move":
            source = _pointer(_source(operation))
            if path[: len(source)] == source and path != source:
                raise PatchFailed("a value cannot be moved into itself")
            value = _at(document, source)
            return _add(_remove(document, source), path, value)
        case "copy":
            return _add(document, path, _copy(_at(document, _pointer(_source(operation)))))
        case "test":
            if not _same(_at(document, path, missing_is_null=True), operation.get("value")):
                raise PatchFailed("the value is another")
            return document
    raise PatchFailed("unknown operation")


def _size_of_copy(document: Any, operation: dict[str, Any]) -> int:
    return len(_encoded(_at(document, _pointer(_source(operation)))))


def _source(operation: dict[str, Any]) -> str:
    source = operation.get("from")
    if not isinstance(source, str):
        raise PatchFailed("from is required")
    return source


def _pointer(text: str) -> list[str]:
    if not text:
        return []
    # A pointer must start with a slash; like the API server, accept others and drop the first segment.
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def _at(document: Any, path: list[str], *, missing_is_null: bool = False) -> Any:
    value = document
    for depth, part in enumerate(path):
        if isinstance(value, dict):
            if part not in value:
                if missing_is_null and depth == len(path) - 1:
                    return None
                raise PatchFailed(f"there is no {part!r}")
            value = value[part]
        elif isinstance(value, list):
            value = value[_index(value, part)]
        else:
            raise PatchFailed(f"there is nothing below {part!r}")
    return value


def _add(document: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    holder, last = _at(document, path[:-1]), path[-1]
    if isinstance(holder, dict):
        holder[last] = value
    elif isinstance(holder, list):
        holder.insert(len(holder) if last == "-" else _index(holder, last, end=True), value)
    else:
        raise PatchFailed(f"there is nothing that could hold {last!r}")
    return document


def _remove(document: Any, path: list[str]) -> Any:
    if not path:
        return None
    holder, last = _at(document, path[:-1]), path[-1]
    if isinstance(holder, dict):
        if last not in holder:
            raise PatchFailed(f"there is no {last!r}")
        del holder[last]
    elif isinstance(holder, list):
        del holder[_index(holder, last)]
    else:
        raise PatchFailed(f"there is nothing that could hold {last!r}")
    return document


def _index(items: list[Any], text: str, *, end: bool = False) -> int:
    if not text.isascii() or not text.isdigit() or (len(text) > 1 and text[0] == "0"):
        raise PatchFailed(f"{text!r} is no index")
    index = parse_count(text)
    if index is None or index >= len(items) + end:
        raise PatchFailed(f"index {text:.100} is out of range")
    return index


def _same(one: Any, other: Any) -> bool:
    """Whether two values are equal as JSON: 1 equals 1.0, but not true."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(value, other[key]) for key, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)


def _copy(value: Any) -> Any:
    return orjson.loads(_encoded(value))


def _encoded(value: Any) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError as error:  # the only error for values decoded from JSON
        raise PatchFailed("the value nests too deep") from error


def merge(target: Any, patch: Any) -> Any:
    """Return a new value: `target` with `patch` applied; neither argument is changed."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge(merged.get(key), value)
    return merged


def difference(before: Any, after: Any) -> Any:
    """Return the smallest merge patch from `before` to `after`; an empty dict if they are equal.

    Both must be objects. None in `after` means absent, as in the API.
    """
    patch: dict[str, Any] = {}
    for key in before.keys() | after.keys():
        old, new = before.get(key), after.get(key)
        if old == new:
            continue
        if isinstance(old, dict) and isinstance(new, dict):
            patch[key] = difference(old, new)
        else:
            patch[key] = new
    return patch
