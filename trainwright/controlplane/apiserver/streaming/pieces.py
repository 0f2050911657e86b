"""Sends large response bodies in pieces, so that the buffers of a connection stay small.

Between the application and the socket are several buffers, which TLS keeps at their largest size until the connection closes.
"""

from __future__ import annotations

from starlette.types import Message, Send

PIECE_BYTES = 64 * 1024
WRITE_BYTES = 16 * 1024
"""What a connection buffers before a write waits, and of a watch is written at once: many clients may read nothing."""


def in_pieces(send: Send) -> Send:
    """A `send` that splits bodies larger than PIECE_BYTES; each piece waits until the client has read most of those before."""

    async def send_in_pieces(message: Message) -> None:
        body = message.get("body", b"") if message["type"] == "http.response.body" else b""
        whole = memoryview(body)
        for start in range(0, len(body) - PIECE_BYTES, PIECE_BYTES):
            await send({"type": "http.response.body", "body": whole[start : start + PIECE_BYTES], "more_body": True})
        rest = (len(body) - 1) // PIECE_BYTES * PIECE_BYTES if body else 0
        await send({**message, "body": whole[rest:]} if rest else message)

    return send_in_pieces
