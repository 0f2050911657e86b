"""Maps HTTP methods and targets to handlers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.types import ASGIApp

from trainwright.api.errors import BadRequest, MethodNotAllowed
from trainwright.controlplane.apiserver.http.object_handlers import ObjectHandlers
from trainwright.controlplane.apiserver.http.subresource_handlers import SubresourceHandlers
from trainwright.controlplane.apiserver.http.unsupported import unsupported
from trainwright.controlplane.apiserver.resources.paths import CONNECT_SUBRESOURCES, Target
from trainwright.controlplane.apiserver.wire.api_errors import not_found_error
from trainwright.controlplane.apiserver.wire.requests import Request
from trainwright.controlplane.apiserver.wire.responses import METHOD_NOT_ALLOWED

Handler = Callable[[Request, Target], Awaitable[ASGIApp]]
_STATUS_METHODS = ("GET", "PUT", "PATCH")


class Routes:
    """The handlers by method and type of target."""

    def __init__(self, objects: ObjectHandlers, subresources: SubresourceHandlers):
        self._connect = subresources.connect
        self._subresources: dict[tuple[str, str], Handler] = {
            ("GET", "log"): subresources.log,
            ("POST", "binding"): subresources.bind,
            ("POST", "eviction"): subresources.evict,
            ("POST", "token"): subresources.issue_token,
            ("PUT", "finalize"): subresources.finalize,
        }
        self._one_method = {name for _, name in self._subresources}
        self._objects: dict[str, Handler] = {
            "GET": objects.get,
            "PUT": objects.update,
            "PATCH": objects.patch,
            "DELETE": objects.delete,
        }
        self._collections: dict[str, Handler] = {
            "GET": objects.list,
            "POST": objects.create,
            "DELETE": objects.delete_collection,
        }

    async def handle(self, request: Request, target: Target) -> ASGIApp:
        """Dispatch a request. Raises ApiError, also for unsupported methods."""
        if target.subresource in CONNECT_SUBRESOURCES:
            return await self._connect(request, target)
        if "subprotocols" in request.scope:
            raise BadRequest("WebSockets are supported only for exec, attach and portforward of pods")
        handler = self._subresources.get((request.method, target.subresource)) or self._plain(request.method, target)
        return await handler(request, target)

    def _plain(self, method: str, target: Target) -> Handler:
        """The handler for an object, its status or a collection. Raises ApiError."""
        custom, subresource = target.strategy.custom, target.subresource
        if target.strategy.read_only and method not in ("GET", "HEAD"):
            raise MethodNotAllowed(METHOD_NOT_ALLOWED)
        if method == "HEAD" and custom:
            method = "GET"
        if subresource in self._one_method and not custom:
            raise unsupported(target, method)
        if subresource not in ("", "status") or (subresource and not target.kind.status):
            raise not_found_error(target.kind, target.name)
        if subresource and method not in _STATUS_METHODS:
            raise unsupported(target, method)
        if custom and target.name and method == "POST":
            return self._collections["POST"]
        handler = (self._objects if target.name else self._collections).get(method)
        if handler is not None:
            return handler
        if custom and method == "PUT":
            raise BadRequest("name must be provided")
        raise unsupported(target, method)
