"""How answers look on the wire: JSON, documents with a tag, Status bodies, warnings."""

from __future__ import annotations

import hashlib

import orjson
from starlette.responses import Response

from trainwright.api.errors import ApiError, Forbidden, MethodNotAllowed
from trainwright.controlplane.apiserver.wire import media, patch_types
from trainwright.controlplane.apiserver.wire.api_errors import NotAcceptable
from trainwright.controlplane.apiserver.wire.media import Media
from trainwright.controlplane.apiserver.wire.requests import Request

NOT_FOUND = "the server could not find the requested resource"
WRONG_METHOD = "the server does not allow this method on the requested resource"


def json_response(data: bytes, code: int = 200, headers: dict[str, str] | None = None) -> Response:
    """JSON that is ready."""
    return Response(data, code, headers=headers, media_type=media.JSON)


def tagged(request: Request, data: bytes, content_type: str, *, lasting: bool = False) -> Response:
    """A document that clients keep, and ask for again by its tag; `lasting` where its address changes with it."""
    tag = f'"{hashlib.sha256(data).hexdigest().upper()}"'
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers={"ETag": tag})
    body, headers = media.packed(data, request.headers.get("accept-encoding"))
    if lasting:
        headers = {**headers, "Cache-Control": "public, immutable", "Expires": "Thu, 31 Dec 2099 23:59:59 GMT"}
    return Response(body, headers={**headers, "ETag": tag, "Content-Type": content_type})


def negotiated(request: Request, wanted: Media, data: bytes, code: int, warnings: list[str]) -> Response:
    """An answer in the notation that the client asked for, with its warnings."""
    body, headers = media.packed(wanted.encode(data), request.headers.get("accept-encoding"))
    response = Response(body, code, headers=headers, media_type=wanted.notation)
    for warning in warnings:
        quoted = warning.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
        response.raw_headers.append((b"warning", f'299 - "{quoted}"'.encode("latin-1", "replace")))
    return response


def error_response(error: ApiError) -> Response:
    """An error as the Status that carries it."""
    headers = {"Retry-After": str(round(error.retry_after))} if error.retry_after else {}
    if getattr(error, "closes", False):
        headers["Connection"] = "close"
    status = error.status()
    if "details" in status:
        status["details"] = {key: value for key, value in status["details"].items() if value != ""}
    elif isinstance(error, Forbidden | MethodNotAllowed | NotAcceptable) or error.message == patch_types.WRONG_TYPE:
        status["details"] = {}
    return json_response(orjson.dumps(status), error.code, headers)


def generic(code: int, reason: str, message: str) -> Response:
    """A refusal that is about no object in particular."""
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message, "reason": reason}
    return json_response(orjson.dumps({**status, "details": {}, "code": code}), code)
