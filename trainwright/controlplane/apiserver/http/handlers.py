"""Handlers of requests for objects, collections and subresources: they read bodies within limits and run verbs against the store.

Objects have get, list, watch, create, update, patch and delete; subresources other than status are log, binding, eviction, token,
finalize, exec, attach and portforward. Responses have the negotiated form: full, Table or PartialObjectMetadata.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from functools import partial as bound
from typing import Any, TypeVar

import anyio
import orjson
from anyio.to_thread import run_sync
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response
from starlette.types import ASGIApp

from trainwright.api import kinds
from trainwright.api.errors import ApiError, BadRequest, Invalid, MethodNotAllowed, Problem
from trainwright.api.objects import Obj
from trainwright.controlplane.apiserver.auth.tokens import Tokens
from trainwright.controlplane.apiserver.endpoints import token_requests
from trainwright.controlplane.apiserver.http.metrics import VERBS
from trainwright.controlplane.apiserver.resources.registry import Target
from trainwright.controlplane.apiserver.storage.listing import Page
from trainwright.controlplane.apiserver.storage.object_table import Record
from trainwright.controlplane.apiserver.streaming.container_logs import LogOptions, open_log
from trainwright.controlplane.apiserver.streaming.remote_command import open_pod_session
from trainwright.controlplane.apiserver.streaming.sessions import PodStreams
from trainwright.controlplane.apiserver.streaming.watches import LOG_READERS, LogStream, WatchStream
from trainwright.controlplane.apiserver.streaming.websocket import OpenStreams
from trainwright.controlplane.apiserver.verbs import patches
from trainwright.controlplane.apiserver.verbs.deletion import DeleteOptions
from trainwright.controlplane.apiserver.verbs.resource_server import ResourceServer
from trainwright.controlplane.apiserver.verbs.writer import Result
from trainwright.controlplane.apiserver.wire import media
from trainwright.controlplane.apiserver.wire.api_errors import NotAcceptable
from trainwright.controlplane.apiserver.wire.bodies import BODY_LIMIT, duplicate_fields, read_body
from trainwright.controlplane.apiserver.wire.media import Media
from trainwright.controlplane.apiserver.wire.requests import (
    ListOptions,
    Request,
    WriteOptions,
    dry_run,
    parse_include_object,
    parse_resource_version,
    resource_version_too_large,
    write_options,
)
from trainwright.controlplane.apiserver.wire.responses import METHOD_NOT_ALLOWED, json_response, negotiated_response
from trainwright.controlplane.apiserver.wire.tables import partial_metadata, table

T = TypeVar("T")
LARGE = 64 * 1024
"""Larger bodies are handled in a thread, to not block the event loop; in bytes."""
MANY = 1000
"""Lists of kinds with more objects are built in a thread."""
_DONE = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


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


class ObjectHandlers(Handlers):
    """Each handler takes a request and its target and returns the response; they raise ApiError."""

    def __init__(self, server: ResourceServer, clock: Callable[[], datetime], body_seconds: float, streams: OpenStreams):
        super().__init__(server, clock, body_seconds)
        self._streams = streams

    async def get(self, request: Request, target: Target) -> ASGIApp:
        wanted = request.query_params.get("resourceVersion")
        if wanted:
            number, current = parse_resource_version(wanted), self.server.store.revision
            if number > current:
                raise resource_version_too_large(number, current)
        answer = self.server.get(target.kind, target.namespace_key, target.name)
        return self.respond(request, target, answer)

    async def list(self, request: Request, target: Target) -> ASGIApp:
        options = ListOptions.parse(request.query_params)
        view = Media.negotiate(request.headers.get("accept"))
        if options.watch:
            rows = parse_include_object(request) if view.view == "Table" else "Metadata"
            return WatchStream(self.server, self._streams, target, options, view.view, rows, self.clock)

        def page() -> Response:
            return page_response(request, target, self.server.list(target.kind, target.namespace, options), self.clock())

        return await run_in_threadpool(page) if self.server.store.size(target.kind.resource) > MANY else page()

    async def create(self, request: Request, target: Target) -> ASGIApp:
        if target.kind.namespaced and target.namespace is None:
            raise unsupported(target, "POST")
        obj, options, size = await self.write_request(request, target)
        create = bound(self.server.create, target.kind, target.namespace_key, obj, options, name=target.name or None)
        return self.respond(request, target, await self.run_write(create, size))

    async def update(self, request: Request, target: Target) -> ASGIApp:
        obj, options, size = await self.write_request(request, target)
        update = bound(self.server.update, target.kind, target.namespace_key, target.name, obj, options)
        return self.respond(request, target, await self.run_write(update, size))

    async def patch(self, request: Request, target: Target) -> ASGIApp:
        name = media.media_type(request.headers.get("content-type"))
        patches.check_media_type(target.strategy, name)
        body = await self.read(request)
        if name == media.APPLY and not request.query_params.get("fieldManager"):
            problem = Problem("fieldManager", "Required value: is required for apply patch", "FieldValueRequired")
            raise Invalid.of("PatchOptions", "", [problem], "meta.k8s.io")
        patch = await in_thread_if_large(body, bound(media.decode_patch, body, yaml_allowed=name == media.APPLY))
        options = write_options(request, status=target.subresource == "status")
        if options.field_validation != "Ignore" and name in (media.MERGE, media.STRATEGIC):
            options = replace(
                options, duplicate_fields=tuple(await in_thread_if_large(body, bound(duplicate_fields, body, patch)))
            )
        change = bound(self.server.patch, target.kind, target.namespace_key, target.name, patch, name, options)
        return self.respond(request, target, await self.run_write(change, len(body)))

    async def delete(self, request: Request, target: Target) -> ASGIApp:
        """Delete an object. Deleting a namespace with its contents may take long, so it runs in a thread."""
        options = await self._delete_options(request)
        delete = bound(self.server.delete, target.kind, target.namespace_key, target.name, options)
        answer = await (run_in_threadpool(delete) if target.kind == kinds.NAMESPACE else self.run_write(delete))
        return self.respond(request, target, answer)

    async def delete_collection(self, request: Request, target: Target) -> ASGIApp:
        if not _is_collectable(target):
            raise unsupported(target, "DELETE")
        options, listing = await self._delete_options(request), ListOptions.parse(request.query_params)
        page = await run_in_threadpool(self.server.delete_collection, target.kind, target.namespace, listing, options)
        return page_response(request, target, page, self.clock())

    async def _delete_options(self, request: Request) -> DeleteOptions:
        body = await self.read(request)
        content = media.decode_options(body, request.headers.get("content-type", "")) if body else None
        return DeleteOptions.parse(content, dict(request.query_params), dry_run=dry_run(request))


def _is_collectable(target: Target) -> bool:
    """Whether deletecollection is supported: not for namespaces, and not across namespaces."""
    return target.kind != kinds.NAMESPACE and target.kind.namespaced == (target.namespace is not None)


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


async def in_thread_if_large(body: bytes, read: Callable[[], T]) -> T:
    """Call `read`, in a thread if the body is large."""
    return await run_in_threadpool(read) if len(body) > LARGE else read()


def object_response(request: Request, target: Target, answer: Result, now: datetime) -> Response:
    """The response for an object or the Status of its deletion. Raises NotAcceptable."""
    wanted = Media.negotiate(request.headers.get("accept"))
    data = answer.data
    if wanted.view and not answer.is_status:
        if wanted.view == "PartialObjectMetadataList":
            raise NotAcceptable(
                f"you requested PartialObjectMetadataList, but the requested object is not a list ({_in_go(target)})"
            )
        if wanted.view == "Table":
            meta = {"resourceVersion": answer.object["metadata"].get("resourceVersion", "")}
            data = orjson.dumps(table(target.kind, [answer.object], meta, now, include=parse_include_object(request)))
        else:
            data = orjson.dumps(partial_metadata(answer.object))
    return negotiated_response(request, wanted, data, 201 if answer.created else 200, answer.warnings)


def _in_go(target: Target) -> str:
    """The Go type of these objects in kube-apiserver."""
    if target.strategy.custom:
        return "*unstructured.Unstructured"
    return f"*{target.kind.group.partition('.')[0] or 'core'}.{target.kind.kind}"


def page_response(request: Request, target: Target, page: Page, now: datetime) -> Response:
    """The response for one page of a list. Raises NotAcceptable."""
    wanted = Media.negotiate(request.headers.get("accept"))
    if wanted.view == "PartialObjectMetadata":
        raise NotAcceptable(f"you requested PartialObjectMetadata, but the requested object is a list ({_in_go(target)}List)")
    meta: Obj = {"resourceVersion": str(page.revision)}
    if page.token:
        meta["continue"] = page.token
    elif target.strategy.custom and not wanted.view:
        meta["continue"] = ""
    if page.remaining is not None:
        meta["remainingItemCount"] = page.remaining
    if wanted.view == "Table":
        objects = [record.object for record in page.records]
        data = orjson.dumps(table(target.kind, objects, meta, now, include=parse_include_object(request)))
    elif wanted.view:
        data = media.encode_list(
            "meta.k8s.io/v1",
            "PartialObjectMetadata",
            meta,
            [orjson.dumps(partial_metadata(record.object)) for record in page.records],
        )
    else:
        data = media.encode_list(
            target.kind.api_version, target.kind.kind, meta, [_list_item(target, record) for record in page.records]
        )
    return negotiated_response(request, wanted, data, 200, [])


def _list_item(target: Target, record: Record) -> bytes:
    """A list item; for built-in kinds without apiVersion and kind, as in kube-apiserver."""
    if target.strategy.custom:
        return record.data
    return orjson.dumps({key: value for key, value in record.object.items() if key not in ("apiVersion", "kind")})


def unsupported(target: Target, method: str) -> ApiError:
    """The error with the message of kube-apiserver, or of apiextensions-apiserver for custom resources."""
    if not target.strategy.custom:
        return MethodNotAllowed(METHOD_NOT_ALLOWED)
    text = f'{VERBS.get(method, "")} is not supported on resources of kind "{target.kind.resource}"'
    return MethodNotAllowed(text, details={"group": target.kind.group, "kind": target.kind.plural})
