"""Which handler a method on a target has: one table for subresources, one for objects and collections."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.types import ASGIApp

from trainwright.api.errors import BadRequest, MethodNotAllowed
from trainwright.controlplane.apiserver.http.object_handlers import ObjectHandlers
from trainwright.controlplane.apiserver.http.subresource_handlers import SubresourceHandlers
from trainwright.controlplane.apiserver.http.unsupported import unsupported
from trainwright.controlplane.apiserver.resources.paths import CONNECTED, Target
from trainwright.controlplane.apiserver.wire.api_errors import not_found
from trainwright.controlplane.apiserver.wire.requests import Request
from trainwright.controlplane.apiserver.wire.responses import WRONG_METHOD

Handler = Callable[[Request, Target], Awaitable[ASGIApp]]
_STATUS_METHODS = ("GET", "PUT", "PATCH")


class Routes:
    """The handlers by method and form of the target."""

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
        """The response. Raises ApiError, also for a method that the target does not have."""
        if target.subresource in CONNECTED:
            return await self._connect(request, target)
        if "subprotocols" in request.scope:
            raise BadRequest("WebSockets are spoken below pods only: at exec, attach and portforward")
        handler = self._subresources.get((request.method, target.subresource)) or self._plain(request.method, target)
        return await handler(request, target)

    def _plain(self, method: str, target: Target) -> Handler:
        """For an object, its status or a collection. Raises ApiError."""
        custom, subresource = target.strategy.custom, target.subresource
        if target.strategy.read_only and method not in ("GET", "HEAD"):
            raise MethodNotAllowed(WRONG_METHOD)
        if method == "HEAD" and custom:
            method = "GET"
        if subresource in self._one_method and not custom:
            raise unsupported(target, method)
        if subresource not in ("", "status") or (subresource and not target.kind.status):
            raise not_found(target.kind, target.name)
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
