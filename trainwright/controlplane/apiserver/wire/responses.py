"""Builds HTTP responses: JSON, documents with an ETag, Status bodies, Warning headers; large bodies are sent in pieces.

Between the application and the socket are several buffers, which TLS keeps at their largest size until the connection closes.
"""

from __future__ import annotations

import hashlib

import orjson
from starlette.responses import Response
from starlette.types import Message, Send

from trainwright.api.errors import ApiError, Forbidden, MethodNotAllowed
from trainwright.controlplane.apiserver.wire import media
from trainwright.controlplane.apiserver.wire.api_errors import NotAcceptable
from trainwright.controlplane.apiserver.wire.media import Media
from trainwright.controlplane.apiserver.wire.requests import Request

NOT_FOUND = "the server could not find the requested resource"
METHOD_NOT_ALLOWED = "the server does not allow this method on the requested resource"
PIECE_BYTES = 64 * 1024
WRITE_BYTES = 16 * 1024
"""What a connection buffers before a write waits, and of a watch is written at once: many clients may read nothing."""


def json_response(data: bytes, code: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A response from serialized JSON."""
    return Response(data, code, headers=headers, media_type=media.JSON)


def cacheable_response(request: Request, data: bytes, content_type: str, *, immutable: bool = False) -> Response:
    """A document with an ETag, or 304 if the client has it. `immutable` marks it immutable: its URL contains its hash."""
    tag = f'"{hashlib.sha256(data).hexdigest().upper()}"'
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers={"ETag": tag})
    body, headers = media.compress(data, request.headers.get("accept-encoding"))
    if immutable:
        headers = {**headers, "Cache-Control": "public, immutable", "Expires": "Thu, 31 Dec 2099 23:59:59 GMT"}
    return Response(body, headers={**headers, "ETag": tag, "Content-Type": content_type})


def negotiated_response(request: Request, wanted: Media, data: bytes, code: int, warnings: list[str]) -> Response:
    """A response in the negotiated media type, with Warning headers."""
    body, headers = media.compress(wanted.encode(data), request.headers.get("accept-encoding"))
    response = Response(body, code, headers=headers, media_type=wanted.media_type)
    for warning in warnings:
        quoted = warning.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
        response.raw_headers.append((b"warning", f'299 - "{quoted}"'.encode("latin-1", "replace")))
    return response


def error_response(error: ApiError) -> Response:
    """The Status response for an error."""
    headers = {"Retry-After": str(round(error.retry_after))} if error.retry_after else {}
    if getattr(error, "closes", False):
        headers["Connection"] = "close"
    status = error.status()
    if "details" in status:
        status["details"] = {key: value for key, value in status["details"].items() if value != ""}
    elif isinstance(error, Forbidden | MethodNotAllowed | NotAcceptable) or error.message == media.UNSUPPORTED_MEDIA_TYPE:
        status["details"] = {}
    return json_response(orjson.dumps(status), error.code, headers)


def status_response(code: int, reason: str, message: str) -> Response:
    """A Failure Status that refers to no object."""
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message, "reason": reason}
    return json_response(orjson.dumps({**status, "details": {}, "code": code}), code)


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
