"""Error responses for connections whose request never reaches the application, as bytes."""

from __future__ import annotations

import orjson

_PHRASES = {400: b"Bad Request", 405: b"Method Not Allowed", 408: b"Request Timeout", 431: b"Request Header Fields Too Large"}


def raw_error(code: int, reason: str, message: str) -> bytes:
    """A whole HTTP response with a Status, after which the connection is to be closed."""
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message}
    body = orjson.dumps({**status, "reason": reason, "details": {}, "code": code})
    head = b"HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
    return head % (code, _PHRASES[code], len(body)) + body
