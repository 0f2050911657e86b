"""The metric labels of a request and the measurement of its status code and duration."""

from __future__ import annotations

import time

from starlette.types import Message, Send

from trainwright.controlplane.apiserver.resources.paths import CONNECT_SUBRESOURCES
from trainwright.controlplane.apiserver.wire.list_options import parse_boolean
from trainwright.controlplane.apiserver.wire.requests import Request

VERBS = {"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


class Stopwatch:
    """Wraps `send` to record the status code and the elapsed time."""

    def __init__(self, send: Send):
        self._send = send
        self._began = time.perf_counter()
        self.code = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] in ("http.response.start", "websocket.http.response.start"):
            self.code = message["status"]
        elif message["type"] == "websocket.accept":
            self.code = 101
        await self._send(message)

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._began


def request_labels(request: Request) -> tuple[str, str]:
    """The verb and resource labels of a request; the resource is empty for non-resource requests."""
    verb, target = VERBS.get(request.method, request.method).upper(), request.target
    if target is None:
        return verb, ""
    if target.subresource in CONNECT_SUBRESOURCES:
        verb = "CONNECT"
    if verb == "GET" and not target.name:
        verb = "WATCH" if parse_boolean(request.query_params.get("watch")) else "LIST"
    return verb, target.kind.resource + (f"/{target.subresource}" if target.subresource else "")
