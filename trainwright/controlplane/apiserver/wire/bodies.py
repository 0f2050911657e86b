"""Reads request bodies with a size limit and a timeout."""

from __future__ import annotations

import asyncio

from starlette.requests import Request

from trainwright.api.errors import Timeout
from trainwright.controlplane.apiserver.wire.api_errors import TooLarge

BODY_SECONDS = 60.0
"""Time limit for sending a body; kube-apiserver's limit for a whole request."""
_DRAIN_BYTES = 16 * 1024 * 1024
"""Bytes read and discarded beyond the limit, so that clients that read the response only after sending everything receive it."""


class _BodyNotDrained(TooLarge):
    """The rest of the body is still unread, so the connection cannot serve another request."""

    closes = True


class _BodyTimeout(Timeout):
    closes = True


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
