"""How much a request may be. What is more is refused before anything is made of it, so that nothing hangs and no stack ends."""

from __future__ import annotations

from typing import Any

import orjson

from trainwright.api.errors import BadRequest
from trainwright.controlplane.apiserver.wire.api_errors import TooLarge

BODY_LIMIT = 3 * 1024 * 1024
"""Bytes of a body, and of a stored object; as kube-apiserver's for bodies."""
OBJECT_DEPTH = 100
"""Levels of an object. kube-apiserver reads 10,000; nobody means more than a few dozen."""
BODY_DEPTH = OBJECT_DEPTH + 20
"""Levels of a body: `managedFields` mirrors an object some levels further down."""
MOST_OPERATIONS = 10_000
"""Operations of a JSON patch, as kube-apiserver's."""
_ENCODER_DEPTH = 254
"""The levels that orjson writes; it documents that number."""


def is_deeper(value: Any, levels: int) -> bool:
    """Whether a value nests more than so many objects and lists.

    orjson finds out in a hundredth of the time of a walk: the value, some levels down, has as many left as it may have.
    """
    holder: Any = value
    try:
        data = orjson.dumps(value)
        if data.count(b"{") + data.count(b"[") <= levels:
            return False  # too few brackets, the usual case
        for _ in range(_ENCODER_DEPTH - levels):
            holder = [holder]
        orjson.dumps(holder)
    except TypeError:
        return True
    return False


def check_depth(obj: Any) -> None:
    """Raises BadRequest for an object that nests too deep."""
    if is_deeper(obj, OBJECT_DEPTH):
        raise BadRequest(f"exceeded max depth: objects nest {OBJECT_DEPTH} levels at most")


def check_operations(operations: Any) -> None:
    """Raises TooLarge for a JSON patch with too many operations."""
    if isinstance(operations, list) and len(operations) > MOST_OPERATIONS:
        allowed = f"The allowed maximum operations in a JSON patch is {MOST_OPERATIONS}, got {len(operations)}"
        raise TooLarge(f"Request entity too large: {allowed}")


def check_stored_size(size: int) -> None:
    """Raises TooLarge for an object that has grown, patch by patch, beyond what anybody could send."""
    if size > BODY_LIMIT:
        raise TooLarge(f"Request entity too large: the object would take {size} bytes, the limit is {BODY_LIMIT}")
