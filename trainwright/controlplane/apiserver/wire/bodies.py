"""Reads request bodies within limits of size, time and depth, so that no request hangs the server or exhausts the stack.

Duplicate fields in JSON are found for field validation; JSON parsers silently keep the last value.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import orjson
from starlette.requests import Request

from trainwright.api.errors import BadRequest, Timeout
from trainwright.api.paths import child, element
from trainwright.controlplane.apiserver.wire.api_errors import TooLarge

BODY_SECONDS = 60.0
"""Time limit for sending a body; kube-apiserver's limit for a whole request."""
_DRAIN_BYTES = 16 * 1024 * 1024
"""Bytes read and discarded beyond the limit, so that clients that read the response only after sending everything receive it."""
BODY_LIMIT = 3 * 1024 * 1024
"""Bytes of a request body and of a stored object; kube-apiserver's limit for bodies."""
OBJECT_DEPTH = 100
"""Nesting levels of an object. kube-apiserver allows 10,000; real objects have a few dozen."""
BODY_DEPTH = OBJECT_DEPTH + 20
"""Nesting levels of a body: `managedFields` repeats an object's fields at a greater depth."""
MAX_PATCH_OPERATIONS = 10_000
"""Operations in a JSON patch; kube-apiserver's limit."""
_ENCODER_DEPTH = 254
"""The maximum nesting that orjson serializes, as documented."""


async def read_body(request: Request, limit: int, seconds: float) -> bytes:
    """Read the body: at most `limit` bytes within `seconds`. Raises TooLarge, Timeout."""
    chunks, size = [], 0
    try:
        async with asyncio.timeout(seconds):
            async for chunk in request.stream():
                size += len(chunk)
                if size <= limit:
                    chunks.append(chunk)
                elif size > limit + _DRAIN_BYTES:
                    raise _BodyNotDrained(f"Request entity too large: limit is {limit}")
    except TimeoutError:
        raise _BodyTimeout("Timeout: request did not complete within the allotted timeout") from None
    if size > limit:
        raise TooLarge(f"Request entity too large: limit is {limit}")
    return b"".join(chunks)


class _BodyNotDrained(TooLarge):
    """The rest of the body is still unread, so the connection cannot serve another request."""

    closes = True


class _BodyTimeout(Timeout):
    closes = True


def is_deeper(value: Any, levels: int) -> bool:
    """Whether a value nests more than `levels` objects and lists.

    Wraps the value so that orjson's own depth limit applies: a hundred times faster than walking it.
    """
    holder: Any = value
    try:
        data = orjson.dumps(value)
        if data.count(b"{") + data.count(b"[") <= levels:
            return False  # too few brackets to nest that deep, the usual case
        for _ in range(_ENCODER_DEPTH - levels):
            holder = [holder]
        orjson.dumps(holder)
    except TypeError:  # the encoder's own limit
        return True
    return False


def check_depth(obj: Any) -> None:
    """Raises BadRequest if an object nests too deep."""
    if is_deeper(obj, OBJECT_DEPTH):
        raise BadRequest(f"exceeded max depth: objects nest {OBJECT_DEPTH} levels at most")


def check_operations(operations: Any) -> None:
    """Raises TooLarge if a JSON patch has too many operations."""
    if isinstance(operations, list) and len(operations) > MAX_PATCH_OPERATIONS:
        allowed = f"The allowed maximum operations in a JSON patch is {MAX_PATCH_OPERATIONS}, got {len(operations)}"
        raise TooLarge(f"Request entity too large: {allowed}")


def check_stored_size(size: int) -> None:
    """Raises TooLarge if an object has grown, through patches, beyond the size that a request could send."""
    if size > BODY_LIMIT:
        raise TooLarge(f"Request entity too large: the object would take {size} bytes, the limit is {BODY_LIMIT}")


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
    except (ValueError, RecursionError):  # not JSON: the decoder tells it, with its place
        return []
    return list(dict.fromkeys(_duplicates(content, ""))) if found else []


class _Pairs(list[tuple[str, Any]]):
    """A JSON object as key-value pairs, duplicates included."""


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
