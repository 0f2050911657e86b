"""Handlers of objects and collections: get, list, watch, create, update, patch, delete."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from functools import partial as bound

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response
from starlette.types import ASGIApp

from trainwright.api import kinds
from trainwright.api.errors import Invalid, Problem
from trainwright.controlplane.apiserver.http.handlers import Handlers, in_thread_if_large
from trainwright.controlplane.apiserver.http.object_responses import page_response
from trainwright.controlplane.apiserver.http.unsupported import unsupported
from trainwright.controlplane.apiserver.resources.paths import Target
from trainwright.controlplane.apiserver.streaming.open_streams import OpenStreams
from trainwright.controlplane.apiserver.streaming.watches import WatchStream
from trainwright.controlplane.apiserver.verbs import patches
from trainwright.controlplane.apiserver.verbs.deletion import DeleteOptions
from trainwright.controlplane.apiserver.verbs.resource_server import ResourceServer
from trainwright.controlplane.apiserver.wire import media, patch_types
from trainwright.controlplane.apiserver.wire.duplicate_fields import duplicate_fields
from trainwright.controlplane.apiserver.wire.list_options import ListOptions, parse_resource_version, resource_version_too_large
from trainwright.controlplane.apiserver.wire.media import Media
from trainwright.controlplane.apiserver.wire.request_options import dry_run, parse_include_object, write_options
from trainwright.controlplane.apiserver.wire.requests import Request

MANY = 1000
"""Lists of kinds with more objects are built in a thread."""


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
        if name == patch_types.APPLY and not request.query_params.get("fieldManager"):
            problem = Problem("fieldManager", "Required value: is required for apply patch", "FieldValueRequired")
            raise Invalid.of("PatchOptions", "", [problem], "meta.k8s.io")
        patch = await in_thread_if_large(body, bound(media.decode_patch, body, yaml_allowed=name == patch_types.APPLY))
        options = write_options(request, status=target.subresource == "status")
        if options.field_validation != "Ignore" and name in (patch_types.MERGE, patch_types.STRATEGIC):
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
