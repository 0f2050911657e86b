"""One client's connection: a parser that is fast, kept from what it would take without limit, and heard out where it gives up.

The parser knows the methods of HTTP and no others, and has no limit of its own on heads.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any, cast

import orjson
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from trainwright.controlplane.apiserver.responses import WRONG_METHOD

HEAD_BYTES = 1024 * 1024
"""Of a request's line and headers together; as kube-apiserver's."""
HEAD_SECONDS = 32.0
"""From the first byte of a request until its head is complete; as kube-apiserver's."""
_REQUEST_LINE = re.compile(rb"[A-Z]{1,20} /[!-~]* HTTP/1\.[01]\r\n")
_KNOWN = re.compile(rb"(GET|HEAD|POST|PUT|PATCH|DELETE|OPTIONS|CONNECT|TRACE) ")
_PHRASES = {400: b"Bad Request", 405: b"Method Not Allowed", 408: b"Request Timeout", 431: b"Request Header Fields Too Large"}


class _Gathered:
    """A transport that sends in one piece what is written in one turn of the loop: the head of an answer with its body."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop):
        self._transport, self._loop = transport, loop
        self._parts: list[bytes] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if not self._parts:
            self._loop.call_soon(self._flush)
        self._parts.append(data)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._parts:
            data = b"".join(self._parts)
            self._parts.clear()
            self._transport.write(data)


class Connection(HttpToolsProtocol):
    """HTTP/1.1, with limits on what comes before a request is one."""

    def __init__(self, *arguments: Any, **settings: Any):
        super().__init__(*arguments, **settings)
        self._is_in_head, self._head, self._received = False, 0, b""
        self._overdue: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(cast(asyncio.Transport, _Gathered(transport, self.loop)))

    def data_received(self, data: bytes) -> None:
        if not self._is_in_head:
            self._received = data
        super().data_received(data)
        if not self._is_in_head:
            return
        self._head += len(data)
        if self._head > HEAD_BYTES:
            self._refuse(431, "RequestHeaderFieldsTooLarge", f"the head of the request is larger than {HEAD_BYTES} bytes")
        elif self._overdue is None:
            self._overdue = self.loop.call_later(
                HEAD_SECONDS, self._refuse, 408, "Timeout", "the head of the request did not come"
            )

    def on_message_begin(self) -> None:
        self._is_in_head, self._head = True, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._headed()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._headed()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """What is no request gets an answer that clients can read; an unknown method the one that it has everywhere."""
        if _REQUEST_LINE.match(self._received) and not _KNOWN.match(self._received):
            self._refuse(405, "MethodNotAllowed", WRONG_METHOD)
        else:
            self._refuse(400, "BadRequest", "the request could not be read as HTTP/1.1")

    def _headed(self) -> None:
        self._is_in_head = False
        if self._overdue is not None:
            self._overdue.cancel()
            self._overdue = None

    def _refuse(self, code: int, reason: str, message: str) -> None:
        """Say why, and hang up."""
        self._headed()
        if self.transport.is_closing():
            return
        status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message}
        body = orjson.dumps({**status, "reason": reason, "details": {}, "code": code})
        head = b"HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
        self.transport.write(head % (code, _PHRASES[code], len(body)) + body)
        self.transport.close()
