"""The API over HTTP: who may come in, which verb a request is, and how the answer looks.

Every request ends in one of the verbs of `rest`, which are carried out here, one after the other: they take less time than handing
them to a thread would. What may take long is handed to one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial as bound
from typing import Any, TypeVar

import anyio
import orjson
from anyio.to_thread import run_sync
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from trainwright.api import kinds
from trainwright.api.errors import ApiError, BadRequest, Invalid, MethodNotAllowed, Problem, Unauthorized
from trainwright.controlplane.apiserver import discovery, media, patches, token_requests
from trainwright.controlplane.apiserver.answers import Answer
from trainwright.controlplane.apiserver.auth import API_AUDIENCE, Tokens, bearer_token
from trainwright.controlplane.apiserver.bodies import BODY_SECONDS, read_body
from trainwright.controlplane.apiserver.connecting import connected
from trainwright.controlplane.apiserver.deletion import DeleteOptions
from trainwright.controlplane.apiserver.descriptions import HEALTH, description, health
from trainwright.controlplane.apiserver.duplicate_fields import duplicate_fields
from trainwright.controlplane.apiserver.failures import TooLarge, not_found
from trainwright.controlplane.apiserver.limits import BODY_LIMIT
from trainwright.controlplane.apiserver.list_options import ListOptions, too_large, version_number
from trainwright.controlplane.apiserver.logs import LogOptions, Logs, NoLogs, open_log
from trainwright.controlplane.apiserver.measuring import VERBS, Stopwatch, measured
from trainwright.controlplane.apiserver.media import Media
from trainwright.controlplane.apiserver.metrics import Metrics
from trainwright.controlplane.apiserver.object_responses import object_response, page_response
from trainwright.controlplane.apiserver.open_streams import Streams
from trainwright.controlplane.apiserver.paths import CONNECTED, NoSuchPath, Target, parse_target
from trainwright.controlplane.apiserver.progress import MAX_BODY, ProgressReports, Report
from trainwright.controlplane.apiserver.refusals import refused
from trainwright.controlplane.apiserver.request_options import dry_run, include, write_options
from trainwright.controlplane.apiserver.requests import Request
from trainwright.controlplane.apiserver.responses import (
    NOT_FOUND,
    WRONG_METHOD,
    error_response,
    generic,
    json_response,
)
from trainwright.controlplane.apiserver.rest import ResourceServer
from trainwright.controlplane.apiserver.reviews import Review, review_at
from trainwright.controlplane.apiserver.sessions import NoSessions, Sessions
from trainwright.controlplane.apiserver.streams import LOG_READERS, LogStream, WatchStream
from trainwright.controlplane.apiserver.websocket import split_protocols
from trainwright.controlplane.apiserver.write_options import WriteOptions
from trainwright.controlplane.exposition import CONTENT_TYPE, Family, Labels, exposed

log = logging.getLogger(__name__)

T = TypeVar("T")
LARGE = 64 * 1024
"""Bytes of a body from which on it is dealt with in a thread: everybody else would wait for it."""
MANY = 1000
"""Objects of a kind from which on lists of it are put together in a thread."""
_LONGEST_LENGTH = 20
"""Digits of a Content-Length."""
_ONE_METHOD = ("log", "binding", "eviction", "finalize", "token")
"""Subresources that are there for one method, which was looked for before."""
_DONE = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


def create_app(
    server: ResourceServer,
    tokens: Tokens,
    logs: Logs | None = None,
    reports: ProgressReports | None = None,
    sessions: Sessions | None = None,
    *,
    measures: Callable[[], Iterable[Family]] = tuple,
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    body_seconds: float = BODY_SECONDS,
) -> Api:
    """The ASGI application; `measures` is what `/metrics` tells of others.

    `streams.close()` ends its watches, followed logs and sessions; a stop has to do it first.
    """
    reports = reports or ProgressReports(server, tokens, clock=clock)
    return Api(server, tokens, logs or NoLogs(), reports, sessions or NoSessions(), Streams(), measures, clock, body_seconds)


class Api:
    """Everything below `/`."""

    def __init__(
        self,
        server: ResourceServer,
        tokens: Tokens,
        logs: Logs,
        reports: ProgressReports,
        sessions: Sessions,
        streams: Streams,
        measures: Callable[[], Iterable[Family]],
        clock: Callable[[], datetime],
        body_seconds: float,
    ):
        self._body_seconds = body_seconds
        self._server = server
        self._tokens = tokens
        self._logs = logs
        self._reports = reports
        self._sessions = sessions
        self.streams = streams
        self._measures_of_others = measures
        self._clock = clock
        self._log_readers = anyio.CapacityLimiter(LOG_READERS)
        self._metrics = Metrics()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # The handshake of a WebSocket is a GET as any other, until it is answered.
        request = Request(scope if scope["type"] == "http" else {**scope, "type": "http", "method": "GET"}, receive)
        if scope["type"] == "websocket":
            scope["query_string"] = b""  # uvicorn logs what it finds here, and a command may hold a secret
        watch = Stopwatch(send)
        try:
            await self._answered(request, scope, receive, watch)
        finally:
            self._metrics.observe(*measured(request), watch.code, watch.seconds)

    async def _answered(self, request: Request, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            answer = await self._answer(request)
        except NoSuchPath as missing:
            answer = (
                Response("404 page not found\n", 404, media_type="text/plain")
                if missing.text
                else generic(404, "NotFound", NOT_FOUND)
            )
        except ApiError as error:
            answer = error_response(error)
        except ClientDisconnect:
            return
        except Exception:
            log.exception("event=request_failed method=%s path=%s", request.method, scope["path"])
            answer = error_response(ApiError("Internal error occurred: see the log of the server"))
        await answer(scope, receive, send)

    async def _answer(self, request: Request) -> ASGIApp:
        path: str = request.scope["path"]
        if path.startswith(HEALTH):
            return health(path)
        if path == "/metrics" and request.method == "GET":
            return self._measures(request)
        if path in ("/version", "/version/"):  # clients made from newer descriptions ask with a slash
            return (
                json_response(orjson.dumps(discovery.version()))
                if request.method == "GET"
                else generic(405, "MethodNotAllowed", WRONG_METHOD)
            )
        parts = path.removesuffix("/").split("/")[1:]
        token = bearer_token(request.headers.get("authorization")) or split_protocols(request.scope)[1]
        if _is_report(request.method, parts) and not (token and self._tokens.is_admin(token)):
            return await self._report(request, parts[4], parts[6], token)
        if token is None:
            raise refused(request.method, path, parts)
        if not self._tokens.is_admin(token):
            # A service account's token is known, and may do nothing here.
            raise refused(request.method, path, parts, str(self._tokens.verify(token, API_AUDIENCE).get("sub")))
        if review := review_at(parts):
            return await self._review(request, review)
        described = description(request, parts)
        if described is not None:
            return described
        if parts[:1] not in (["api"], ["apis"]) or len(parts) < (3 if parts[0] == "api" else 4):
            raise NoSuchPath(text=parts[:1] != ["api"])
        request.target = parse_target(parts)
        return await self._resource(request, request.target)

    def _measures(self, request: Request) -> ASGIApp:
        token = bearer_token(request.headers.get("authorization"))
        if token is None or not self._tokens.is_admin(token):
            raise refused("GET", "/metrics", ["metrics"]) if token is None else Unauthorized("Unauthorized")
        store = self._server.store
        gauges: dict[tuple[str, Labels], float] = {("apiserver_storage_revision", ()): store.revision}
        for name, counts in (("apiserver_storage_objects", store.sizes()), ("apiserver_registered_watchers", store.watchers())):
            gauges |= {(name, (("resource", resource),)): count for resource, count in sorted(counts.items())}
        text = self._metrics.text(gauges) + exposed(self._measures_of_others())
        return Response(text, headers={"Content-Type": CONTENT_TYPE})

    async def _review(self, request: Request, review: Review) -> ASGIApp:
        if request.method != "POST":
            raise MethodNotAllowed(WRONG_METHOD)
        body = media.decode_body(await self._read(request), request.headers.get("content-type", ""), review.kind)
        return json_response(orjson.dumps(review.reviewed(body, self._tokens)), 201)

    async def _resource(self, request: Request, target: Target) -> ASGIApp:
        """The verb that method and target make."""
        method = request.method
        if target.subresource in CONNECTED:
            if method not in ("GET", "POST"):
                raise MethodNotAllowed(WRONG_METHOD)
            return await connected(request, self._server, self._sessions, self.streams, target)
        if "subprotocols" in request.scope:
            raise BadRequest("WebSockets are spoken below pods only: at exec, attach and portforward")
        if target.subresource == "log" and method == "GET":
            return await self._log(request, target)
        if target.subresource == "binding" and method == "POST":
            return await self._bind(request, target)
        if target.subresource == "eviction" and method == "POST":
            return await self._evict(request, target)
        if target.subresource == "token" and method == "POST":
            return await self._issue(request, target)
        if target.subresource == "finalize" and method == "PUT":
            return await self._finalize(request, target)
        if target.strategy.read_only and method not in ("GET", "HEAD"):
            raise MethodNotAllowed(WRONG_METHOD)
        if method == "HEAD" and target.strategy.custom:
            method = "GET"
        if target.subresource in _ONE_METHOD and not target.strategy.custom:
            raise _unsupported(target, method)
        if target.subresource not in ("", "status") or (target.subresource and not target.kind.status):
            raise not_found(target.kind, target.name)
        if target.subresource and method not in ("GET", "PUT", "PATCH"):
            raise _unsupported(target, method)
        match method, bool(target.name):
            case "GET", False:
                return await self._list(request, target)
            case "GET", True:
                return self._get(request, target)
            case "POST", _ if not target.name or target.strategy.custom:
                return await self._create(request, target)
            case "PUT", True:
                return await self._update(request, target)
            case "PUT", False if target.strategy.custom:
                raise BadRequest("name must be provided")
            case "PATCH", True:
                return await self._patch(request, target)
            case "DELETE", _ if target.name or _is_collectable(target):
                return await self._delete(request, target)
        raise _unsupported(target, method)

    def _get(self, request: Request, target: Target) -> ASGIApp:
        wanted = request.query_params.get("resourceVersion")
        if wanted:
            number, current = version_number(wanted), self._server.store.revision
            if number > current:
                raise too_large(number, current)
        answer = self._server.get(target.kind, target.space, target.name)
        return self._shown(request, target, answer)

    async def _list(self, request: Request, target: Target) -> ASGIApp:
        options = ListOptions.parse(request.query_params)
        view = Media.accepted(request.headers.get("accept"))
        if options.watch:
            rows = include(request) if view.view == "Table" else "Metadata"
            return WatchStream(self._server, self.streams, target, options, view.view, rows, self._clock)

        def page() -> Response:
            return page_response(request, target, self._server.list(target.kind, target.namespace, options), self._clock())

        return await run_in_threadpool(page) if self._server.store.size(target.kind.resource) > MANY else page()

    async def _create(self, request: Request, target: Target) -> ASGIApp:
        if target.kind.namespaced and target.namespace is None:
            raise _unsupported(target, "POST")
        obj, options, size = await self._written(request, target)
        create = bound(self._server.create, target.kind, target.space, obj, options, name=target.name or None)
        return self._shown(request, target, await self._done(create, size))

    async def _update(self, request: Request, target: Target) -> ASGIApp:
        obj, options, size = await self._written(request, target)
        update = bound(self._server.update, target.kind, target.space, target.name, obj, options)
        return self._shown(request, target, await self._done(update, size))

    async def _patch(self, request: Request, target: Target) -> ASGIApp:
        name = media.media_type(request.headers.get("content-type"))
        patches.check_media_type(target.strategy, name)
        body = await self._read(request)
        if name == patches.APPLY and not request.query_params.get("fieldManager"):
            problem = Problem("fieldManager", "Required value: is required for apply patch", "FieldValueRequired")
            raise Invalid.of("PatchOptions", "", [problem], "meta.k8s.io")
        patch = await _unless_large(body, bound(media.decode_patch, body, yaml_allowed=name == patches.APPLY))
        options = write_options(request, status=target.subresource == "status")
        if options.strictness != "Ignore" and name in (patches.MERGE, patches.STRATEGIC):
            options = replace(options, duplicates=tuple(await _unless_large(body, bound(duplicate_fields, body, patch))))
        change = bound(self._server.patch, target.kind, target.space, target.name, patch, name, options)
        return self._shown(request, target, await self._done(change, len(body)))

    async def _delete(self, request: Request, target: Target) -> ASGIApp:
        body = await self._read(request)
        content = media.decode_options(body, request.headers.get("content-type", "")) if body else None
        options = DeleteOptions.parse(content, dict(request.query_params), dry_run=dry_run(request))
        if target.name:
            delete = bound(self._server.delete, target.kind, target.space, target.name, options)
            # A namespace takes all that is in it along.
            answer = await (run_in_threadpool(delete) if target.kind == kinds.NAMESPACE else self._done(delete))
            return self._shown(request, target, answer)
        listing = ListOptions.parse(request.query_params)
        page = await run_in_threadpool(self._server.delete_collection, target.kind, target.namespace, listing, options)
        return page_response(request, target, page, self._clock())

    async def _bind(self, request: Request, target: Target) -> ASGIApp:
        body = await self._body(request, target)
        wanted = body.get("target") if isinstance(body, dict) else None
        node = wanted.get("name") if isinstance(wanted, dict) else None
        await self._done(bound(self._server.bind, target.space, target.name, str(node or "")))
        return json_response(orjson.dumps(_DONE), 201)

    async def _evict(self, request: Request, target: Target) -> ASGIApp:
        """A pod goes as it would by DELETE: there are no budgets that could forbid it."""
        body = await self._body(request, target)
        wanted = body.get("deleteOptions") if isinstance(body, dict) else None
        options = DeleteOptions.parse(wanted, {}, dry_run=dry_run(request))
        await self._done(bound(self._server.delete, target.kind, target.space, target.name, options))
        return json_response(orjson.dumps(_DONE), 201)

    async def _issue(self, request: Request, target: Target) -> ASGIApp:
        body = await self._read(request)
        wanted = media.decode_body(body, request.headers.get("content-type", ""), token_requests.KIND)
        answer = token_requests.issued(self._server, self._tokens, target.space, target.name, wanted, self._clock())
        return json_response(orjson.dumps(answer), 201)

    async def _finalize(self, request: Request, target: Target) -> ASGIApp:
        obj, options, size = await self._written(request, target)
        return self._shown(request, target, await self._done(bound(self._server.finalize, target.name, obj, options), size))

    async def _log(self, request: Request, target: Target) -> ASGIApp:
        pod = self._server.get(target.kind, target.space, target.name).object
        options = LogOptions.parse(target.name, request.query_params)
        chunks = await run_in_threadpool(open_log, self._logs, pod, options, self._clock())
        if chunks is None:
            return Response(status_code=204)
        # The first chunk before the answer begins: what is wrong with the log shows when it is read.
        first = await run_sync(next, chunks, None, limiter=self._log_readers)
        return LogStream(self.streams, first, chunks, self._log_readers)

    async def _report(self, request: Request, namespace: str, name: str, token: str | None) -> ASGIApp:
        declared = request.headers.get("content-length", "")
        size = int(declared[:_LONGEST_LENGTH]) if declared.isdecimal() else 0
        body = b""
        if size <= MAX_BODY:
            try:
                body = await self._read(request, MAX_BODY)
            except TooLarge:
                size = MAX_BODY + 1
        code, answer = await run_in_threadpool(self._reports, Report(namespace, name, token, max(size, len(body)), body))
        return json_response(orjson.dumps(answer), code)

    def _shown(self, request: Request, target: Target, answer: Answer) -> Response:
        return object_response(request, target, answer, self._clock())

    async def _read(self, request: Request, limit: int = BODY_LIMIT) -> bytes:
        """The body. Raises TooLarge, Timeout for a client that does not send it."""
        return await read_body(request, limit, self._body_seconds)

    async def _done(self, write: Callable[[], T], size: int = 0) -> T:
        """A write: decided at once, then on disk together with what others decide in the same turn of the loop.

        In a thread where either would take long: of large objects (`size` in bytes), and with a disk to wait for.
        """
        if size > LARGE:
            return await run_in_threadpool(write)
        store = self._server.store
        try:
            with store.deferred():
                answer = write()
        finally:
            if store.durability == "full":
                await run_in_threadpool(store.settle, store.decided)
            else:
                decided = store.decided
                await asyncio.sleep(0)
                store.settle(decided)
        return answer

    async def _body(self, request: Request, target: Target) -> Any:
        body = await self._read(request)
        return await _unless_large(
            body, bound(media.decode_body, body, request.headers.get("content-type", ""), target.kind.kind)
        )

    async def _written(self, request: Request, target: Target) -> tuple[Any, WriteOptions, int]:
        """The object that a request writes, how, and the bytes of it."""
        options = write_options(request, status=target.subresource == "status")
        body, content_type = await self._read(request), request.headers.get("content-type", "")
        obj = await _unless_large(body, bound(media.decode_body, body, content_type, target.kind.kind))
        if obj is None and not target.strategy.custom:  # `null` says as little as `{}`
            obj = {}
        if target.strategy.custom and isinstance(obj, dict):
            for name, said in (("kind", "Kind"), ("apiVersion", "apiVersion")):
                if not obj.get(name):
                    text = body.decode(errors="replace")
                    why = f"Object '{said}' is missing in '{text}' ({media.summarised(body)})"
                    raise BadRequest(f"the object provided is unrecognized (must be of type {target.kind.kind}): {why}")
        if options.strictness != "Ignore" and media.media_type(content_type) == media.JSON:
            found = await _unless_large(body, bound(duplicate_fields, body, obj))
            options = replace(options, duplicates=tuple(found)) if found else options
        return obj, options, len(body)


def _is_collectable(target: Target) -> bool:
    """Whether everything in a collection may be deleted at once: not namespaces, and not one kind in all of them."""
    return target.kind != kinds.NAMESPACE and target.kind.namespaced == (target.namespace is not None)


def _is_report(method: str, parts: list[str]) -> bool:
    head = ["apis", kinds.TRAINJOB.group, kinds.TRAINJOB.version, "namespaces"]
    return (
        method == "POST" and len(parts) == 8 and parts[:4] == head and parts[5] == kinds.TRAINJOB.plural and parts[7] == "status"
    )


def _unsupported(target: Target, method: str) -> ApiError:
    if not target.strategy.custom:
        return MethodNotAllowed(WRONG_METHOD)
    text = f'{VERBS.get(method, "")} is not supported on resources of kind "{target.kind.resource}"'
    return MethodNotAllowed(text, details={"group": target.kind.group, "kind": target.kind.plural})


async def _unless_large(body: bytes, read: Callable[[], T]) -> T:
    """What is read from a body, in a thread where that takes long."""
    return await run_in_threadpool(read) if len(body) > LARGE else read()
