"""Size and depth limits of requests, checked before processing so that no request hangs the server or exhausts the stack."""

from __future__ import annotations

from typing import Any

import orjson

from trainwright.api.errors import BadRequest
from trainwright.controlplane.apiserver.wire.api_errors import TooLarge

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
    except TypeError:
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
