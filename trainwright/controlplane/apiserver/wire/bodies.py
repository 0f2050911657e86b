"""Taking the body of a request in: so much, in so many seconds, and no further."""

from __future__ import annotations

import asyncio

from starlette.requests import Request

from trainwright.api.errors import Timeout
from trainwright.controlplane.apiserver.wire.api_errors import TooLarge

BODY_SECONDS = 60.0
"""What a client gets to send a body; kube-apiserver's limit for a whole request."""
_PASSED_OVER = 16 * 1024 * 1024
"""Bytes beyond the limit that are still read: a client that sends all before it listens would not hear the answer otherwise."""


class _Endless(TooLarge):
    """What was not read stands where the next request would: no more of them on this connection."""

    closes = True


class _Slow(Timeout):
    closes = True


async def read_body(request: Request, limit: int, seconds: float) -> bytes:
    """The body. Raises TooLarge, Timeout."""
    chunks, size = [], 0
    try:
        async with asyncio.timeout(seconds):
            async for chunk in request.stream():
                size += len(chunk)
                if size <= limit:
                    chunks.append(chunk)
                elif size > limit + _PASSED_OVER:
                    raise _Endless(f"Request entity too large: limit is {limit}")
    except TimeoutError:
        raise _Slow("Timeout: request did not complete within the allotted timeout") from None
    if size > limit:
        raise TooLarge(f"Request entity too large: limit is {limit}")
    return b"".join(chunks)
