"""The base class of resource handlers: reads bodies within limits and runs verbs against the store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from functools import partial as bound
from typing import Any, TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from trainwright.api.errors import BadRequest
from trainwright.controlplane.apiserver.http.object_responses import object_response
from trainwright.controlplane.apiserver.resources.paths import Target
from trainwright.controlplane.apiserver.verbs.resource_server import ResourceServer
from trainwright.controlplane.apiserver.verbs.results import Result
from trainwright.controlplane.apiserver.wire import media
from trainwright.controlplane.apiserver.wire.bodies import read_body
from trainwright.controlplane.apiserver.wire.duplicate_fields import duplicate_fields
from trainwright.controlplane.apiserver.wire.limits import BODY_LIMIT
from trainwright.controlplane.apiserver.wire.request_options import write_options
from trainwright.controlplane.apiserver.wire.requests import Request
from trainwright.controlplane.apiserver.wire.write_options import WriteOptions

T = TypeVar("T")
LARGE = 64 * 1024
"""Larger bodies are handled in a thread, to not block the event loop; in bytes."""


class Handlers:
    """Runs verbs in the event loop, because most take less time than a thread switch; slow ones run in a thread."""

    def __init__(self, server: ResourceServer, clock: Callable[[], datetime], body_seconds: float):
        self.server, self.clock, self.body_seconds = server, clock, body_seconds

    async def read(self, request: Request, limit: int = BODY_LIMIT) -> bytes:
        """Read the request body. Raises TooLarge, Timeout."""
        return await read_body(request, limit, self.body_seconds)

    async def body(self, request: Request, target: Target) -> Any:
        body = await self.read(request)
        return await in_thread_if_large(
            body, bound(media.decode_body, body, request.headers.get("content-type", ""), target.kind.kind)
        )

    async def write_request(self, request: Request, target: Target) -> tuple[Any, WriteOptions, int]:
        """The object of a write request, its options and its size in bytes."""
        options = write_options(request, status=target.subresource == "status")
        body, content_type = await self.read(request), request.headers.get("content-type", "")
        obj = await in_thread_if_large(body, bound(media.decode_body, body, content_type, target.kind.kind))
        if obj is None and not target.strategy.custom:  # `null` is treated as `{}`
            obj = {}
        if target.strategy.custom and isinstance(obj, dict):
            for name, said in (("kind", "Kind"), ("apiVersion", "apiVersion")):
                if not obj.get(name):
                    text = body.decode(errors="replace")
                    why = f"Object '{said}' is missing in '{text}' ({media.summarize_body(body)})"
                    raise BadRequest(f"the object provided is unrecognized (must be of type {target.kind.kind}): {why}")
        if options.field_validation != "Ignore" and media.media_type(content_type) == media.JSON:
            found = await in_thread_if_large(body, bound(duplicate_fields, body, obj))
            options = replace(options, duplicate_fields=tuple(found)) if found else options
        return obj, options, len(body)

    async def run_write(self, write: Callable[[], T], size: int = 0) -> T:
        """Run a write and flush it together with other writes of the same event loop iteration.

        Large objects (`size` in bytes) are written, and flushes with `full` durability run, in a thread.
        """
        if size > LARGE:
            return await run_in_threadpool(write)
        store = self.server.store
        try:
            with store.deferred():
                answer = write()
        finally:
            if store.durability == "full":
                await run_in_threadpool(store.flush, store.accepted_revision)
            else:
                accepted = store.accepted_revision
                await asyncio.sleep(0)
                store.flush(accepted)
        return answer

    def respond(self, request: Request, target: Target, answer: Result) -> Response:
        return object_response(request, target, answer, self.clock())


async def in_thread_if_large(body: bytes, read: Callable[[], T]) -> T:
    """Call `read`, in a thread if the body is large."""
    return await run_in_threadpool(read) if len(body) > LARGE else read()
