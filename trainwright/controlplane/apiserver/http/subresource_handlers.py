"""Handlers of subresources other than status: log, binding, eviction, token, finalize, exec, attach, portforward."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial as bound

import anyio
import orjson
from anyio.to_thread import run_sync
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response
from starlette.types import ASGIApp

from trainwright.api.errors import MethodNotAllowed
from trainwright.controlplane.apiserver.auth.tokens import Tokens
from trainwright.controlplane.apiserver.endpoints import token_requests
from trainwright.controlplane.apiserver.http.handlers import Handlers
from trainwright.controlplane.apiserver.resources.paths import Target
from trainwright.controlplane.apiserver.streaming.container_logs import LogOptions, open_log
from trainwright.controlplane.apiserver.streaming.open_streams import OpenStreams
from trainwright.controlplane.apiserver.streaming.pod_upgrade import open_pod_session
from trainwright.controlplane.apiserver.streaming.sessions import PodStreams
from trainwright.controlplane.apiserver.streaming.watches import LOG_READERS, LogStream
from trainwright.controlplane.apiserver.verbs.deletion import DeleteOptions
from trainwright.controlplane.apiserver.verbs.resource_server import ResourceServer
from trainwright.controlplane.apiserver.wire import media
from trainwright.controlplane.apiserver.wire.request_options import dry_run
from trainwright.controlplane.apiserver.wire.requests import Request
from trainwright.controlplane.apiserver.wire.responses import METHOD_NOT_ALLOWED, json_response

_DONE = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


class SubresourceHandlers(Handlers):
    """Each handler takes a request and its target and returns the response; they raise ApiError."""

    def __init__(
        self,
        server: ResourceServer,
        clock: Callable[[], datetime],
        body_seconds: float,
        streams: OpenStreams,
        tokens: Tokens,
        pods: PodStreams,
    ):
        super().__init__(server, clock, body_seconds)
        self._streams, self._tokens, self._pods = streams, tokens, pods
        self._log_readers = anyio.CapacityLimiter(LOG_READERS)

    async def connect(self, request: Request, target: Target) -> ASGIApp:
        if request.method not in ("GET", "POST"):
            raise MethodNotAllowed(METHOD_NOT_ALLOWED)
        return await open_pod_session(request, self.server, self._pods.sessions, self._streams, target)

    async def log(self, request: Request, target: Target) -> ASGIApp:
        pod = self.server.get(target.kind, target.namespace_key, target.name).object
        options = LogOptions.parse(target.name, request.query_params)
        chunks = await run_in_threadpool(open_log, self._pods.logs, pod, options, self.clock())
        if chunks is None:
            return Response(status_code=204)
        # Read the first chunk before the response starts, so that errors get their own status code.
        first = await run_sync(next, chunks, None, limiter=self._log_readers)
        return LogStream(self._streams, first, chunks, self._log_readers)

    async def bind(self, request: Request, target: Target) -> ASGIApp:
        body = await self.body(request, target)
        wanted = body.get("target") if isinstance(body, dict) else None
        node = wanted.get("name") if isinstance(wanted, dict) else None
        await self.run_write(bound(self.server.bind, target.namespace_key, target.name, str(node or "")))
        return json_response(orjson.dumps(_DONE), 201)

    async def evict(self, request: Request, target: Target) -> ASGIApp:
        """Mark a pod as disrupted, and delete it: PodDisruptionBudgets are not supported."""
        body = await self.body(request, target)
        wanted = body.get("deleteOptions") if isinstance(body, dict) else None
        options = DeleteOptions.parse(wanted, {}, dry_run=dry_run(request))
        await self.run_write(bound(self.server.evict, target.namespace_key, target.name, options))
        return json_response(orjson.dumps(_DONE), 201)

    async def issue_token(self, request: Request, target: Target) -> ASGIApp:
        body = await self.read(request)
        wanted = media.decode_body(body, request.headers.get("content-type", ""), token_requests.KIND)
        answer = token_requests.issue_token(self.server, self._tokens, target.namespace_key, target.name, wanted, self.clock())
        return json_response(orjson.dumps(answer), 201)

    async def finalize(self, request: Request, target: Target) -> ASGIApp:
        obj, options, size = await self.write_request(request, target)
        return self.respond(request, target, await self.run_write(bound(self.server.finalize, target.name, obj, options), size))
