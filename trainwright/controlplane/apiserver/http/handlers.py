"""What every handler of a resource request needs: its body, within limits, and a turn at the store."""

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
from trainwright.controlplane.apiserver.verbs.answers import Answer
from trainwright.controlplane.apiserver.verbs.resource_server import ResourceServer
from trainwright.controlplane.apiserver.wire import media
from trainwright.controlplane.apiserver.wire.bodies import read_body
from trainwright.controlplane.apiserver.wire.duplicate_fields import duplicate_fields
from trainwright.controlplane.apiserver.wire.limits import BODY_LIMIT
from trainwright.controlplane.apiserver.wire.request_options import write_options
from trainwright.controlplane.apiserver.wire.requests import Request
from trainwright.controlplane.apiserver.wire.write_options import WriteOptions

T = TypeVar("T")
LARGE = 64 * 1024
"""Bytes of a body from which on it is handled in a thread: all other requests would wait for it."""


class Handlers:
    """The base of the handlers. Verbs run in the event loop, one after the other: they take less time than handing them to a
    thread would; what may take long goes to one.
    """

    def __init__(self, server: ResourceServer, clock: Callable[[], datetime], body_seconds: float):
        self.server, self.clock, self.body_seconds = server, clock, body_seconds

    async def read(self, request: Request, limit: int = BODY_LIMIT) -> bytes:
        """The body. Raises TooLarge, Timeout for a client that does not send it."""
        return await read_body(request, limit, self.body_seconds)

    async def body(self, request: Request, target: Target) -> Any:
        body = await self.read(request)
        return await unless_large(body, bound(media.decode_body, body, request.headers.get("content-type", ""), target.kind.kind))

    async def written(self, request: Request, target: Target) -> tuple[Any, WriteOptions, int]:
        """The object that a request writes, how, and the bytes of it."""
        options = write_options(request, status=target.subresource == "status")
        body, content_type = await self.read(request), request.headers.get("content-type", "")
        obj = await unless_large(body, bound(media.decode_body, body, content_type, target.kind.kind))
        if obj is None and not target.strategy.custom:  # `null` says as little as `{}`
            obj = {}
        if target.strategy.custom and isinstance(obj, dict):
            for name, said in (("kind", "Kind"), ("apiVersion", "apiVersion")):
                if not obj.get(name):
                    text = body.decode(errors="replace")
                    why = f"Object '{said}' is missing in '{text}' ({media.summarised(body)})"
                    raise BadRequest(f"the object provided is unrecognized (must be of type {target.kind.kind}): {why}")
        if options.strictness != "Ignore" and media.media_type(content_type) == media.JSON:
            found = await unless_large(body, bound(duplicate_fields, body, obj))
            options = replace(options, duplicates=tuple(found)) if found else options
        return obj, options, len(body)

    async def done(self, write: Callable[[], T], size: int = 0) -> T:
        """A write: accepted at once, then on disk together with what others write in the same turn of the loop.

        In a thread where either would take long: of large objects (`size` in bytes), and with a disk to wait for.
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

    def shown(self, request: Request, target: Target, answer: Answer) -> Response:
        return object_response(request, target, answer, self.clock())


async def unless_large(body: bytes, read: Callable[[], T]) -> T:
    """The result of `read`, run in a thread for a large body."""
    return await run_in_threadpool(read) if len(body) > LARGE else read()
