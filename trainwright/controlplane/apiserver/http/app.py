"""The ASGI application: authenticates and authorizes requests, dispatches them to handlers, returns errors as Status."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import orjson
from prometheus_client.core import Metric
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from trainwright.api import kinds
from trainwright.api.errors import ApiError, BadRequest, MethodNotAllowed, Unauthorized
from trainwright.api.selectors.selection import field_terms
from trainwright.controlplane.apiserver.auth.authorizer import (
    ADMINISTRATOR,
    Access,
    Authorizer,
    Caller,
    forbidden_error,
    impersonated,
    service_account_user,
)
from trainwright.controlplane.apiserver.auth.tokens import API_AUDIENCE, Authenticator, Tokens, bearer_token
from trainwright.controlplane.apiserver.discovery import documents
from trainwright.controlplane.apiserver.discovery.endpoints import HEALTH, discovery_response, health
from trainwright.controlplane.apiserver.endpoints.reviews import Review, review_at
from trainwright.controlplane.apiserver.endpoints.trainer_status import MAX_BODY, ProgressReports, Report
from trainwright.controlplane.apiserver.http.handlers import ObjectHandlers, SubresourceHandlers, unsupported
from trainwright.controlplane.apiserver.http.metrics import VERBS, Metrics, Stopwatch, request_labels
from trainwright.controlplane.apiserver.resources.registry import CONNECT_SUBRESOURCES, NoSuchPath, Target, parse_target
from trainwright.controlplane.apiserver.streaming.sessions import PodStreams
from trainwright.controlplane.apiserver.streaming.websocket import OpenStreams, split_protocols
from trainwright.controlplane.apiserver.verbs.resource_server import ResourceServer
from trainwright.controlplane.apiserver.wire import media
from trainwright.controlplane.apiserver.wire.api_errors import TooLarge, not_found_error
from trainwright.controlplane.apiserver.wire.bodies import BODY_SECONDS
from trainwright.controlplane.apiserver.wire.requests import Request, parse_boolean
from trainwright.controlplane.apiserver.wire.responses import (
    METHOD_NOT_ALLOWED,
    NOT_FOUND,
    error_response,
    in_pieces,
    json_response,
    status_response,
)
from trainwright.controlplane.exposition import CONTENT_TYPE, exposition

_LONGEST_LENGTH = 20
"""Maximum digits of a Content-Length."""
Handler = Callable[[Request, Target], Awaitable[ASGIApp]]
_STATUS_METHODS = ("GET", "PUT", "PATCH")
_NAME_FIELD = "metadata.name"
_SELECTING = ("list", "watch", "deletecollection")
"""The verbs whose field selector can name an object. With others it selects nothing, and grants nothing."""
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PlaneView:
    """What the parts around the API server tell it."""

    extra_metrics: Callable[[], Iterable[Metric]] = tuple
    """Returns more metrics for `/metrics`."""
    problems: Callable[[], Mapping[str, Sequence[str]]] = dict
    """Returns why other parts are not ready."""
    page: Callable[[], str] = str
    """Returns the address that `/ui/` redirects to, empty if there is none."""
    build: str = "trainwright"
    """The end of the version that the server says it has."""


class Api:
    """The ASGI application for all paths.

    `pods` are the logs of pods and sessions in them. Call `streams.close()` first when stopping: it ends watches, followed logs and
    sessions.
    """

    def __init__(
        self,
        server: ResourceServer,
        tokens: Tokens,
        pods: PodStreams = PodStreams(),  # noqa: B008  (frozen)
        plane: PlaneView = PlaneView(),
        *,
        body_seconds: float = BODY_SECONDS,
    ):
        def clock() -> datetime:
            return datetime.now(UTC)

        self._server, self._authenticator = server, Authenticator(tokens, server.store, clock)
        self._reports, self._plane, self.streams = ProgressReports(server, tokens), plane, OpenStreams()
        self._authorizer = Authorizer(lambda kind: [record.object for record in server.store.list(kind.resource)[0]])
        self._metrics = Metrics()
        self._objects = ObjectHandlers(server, clock, body_seconds, self.streams)
        self._routes = Routes(self._objects, SubresourceHandlers(server, clock, body_seconds, self.streams, tokens, pods))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # A WebSocket handshake is handled as a GET request.
        request = Request(scope if scope["type"] == "http" else {**scope, "type": "http", "method": "GET"}, receive)
        if scope["type"] == "websocket":
            scope["query_string"] = b""  # uvicorn logs the query string, and a command may contain a secret
        watch = Stopwatch(in_pieces(send))
        try:
            await self._answered(request, scope, receive, watch)
        finally:
            self._metrics.observe(*request_labels(request), watch.code, watch.seconds)

    async def _answered(self, request: Request, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            answer = await self._answer(request)
        except NoSuchPath as missing:  # as text outside of the API, as kube-apiserver answers
            answer = (
                Response("404 page not found\n", 404, media_type="text/plain")
                if missing.text
                else status_response(404, "NotFound", NOT_FOUND)
            )
        except ApiError as error:
            answer = error_response(error)
        except ClientDisconnect:  # nobody reads an answer
            return
        except Exception:  # one request must not end the connection, nor tell clients about the server
            log.exception("event=request_failed method=%s path=%s", request.method, scope["path"])
            answer = error_response(ApiError("Internal error occurred: see the log of the server"))
        await answer(scope, receive, send)

    async def _answer(self, request: Request) -> ASGIApp:
        path: str = request.scope["path"]
        if path.startswith(HEALTH):
            return health(path, self._plane.problems(), is_verbose="verbose" in request.query_params)
        if path == "/metrics" and request.method == "GET":
            return self._serve_metrics(request)
        if path in ("/version", "/version/"):  # clients generated from newer OpenAPI specs send a trailing slash
            return (
                json_response(orjson.dumps(documents.version(self._plane.build)))
                if request.method == "GET"
                else status_response(405, "MethodNotAllowed", METHOD_NOT_ALLOWED)
            )
        if path in ("/ui", "/ui/") and (address := self._plane.page()):
            return RedirectResponse(address, 307)
        parts = path.removesuffix("/").split("/")[1:]
        token = bearer_token(request.headers.get("authorization")) or split_protocols(request.scope)[1]
        if _is_report(request.method, parts) and not (token and self._authenticator.is_admin(token)):
            return await self._report(request, parts[4], parts[6], token)
        if token is None:
            raise forbidden_error(access_of(request, path, parts))
        caller = self._caller(request, token)
        if not caller.is_administrator:
            caller.require_access(access_of(request, path, parts))
        if review := review_at(parts):
            return await self._review(request, review, caller)
        described = discovery_response(request, parts)
        if described is not None:
            return described
        if parts[:1] not in (["api"], ["apis"]) or len(parts) < (3 if parts[0] == "api" else 4):
            raise NoSuchPath(text=parts[:1] != ["api"])
        request.target, request.sender = parse_target(parts), caller
        return await self._routes.handle(request, request.target)

    def _caller(self, request: Request, token: str) -> Caller:
        """Return the user of the token, or the one that it is sent as. Raises Unauthorized, BadRequest, Forbidden."""
        if self._authenticator.is_admin(token):
            user = ADMINISTRATOR
        else:
            user = service_account_user(self._authenticator.verify(token, API_AUDIENCE))
        return impersonated(Caller(user, self._authorizer, self._authenticator), request.scope["headers"])

    def _serve_metrics(self, request: Request) -> ASGIApp:
        token = bearer_token(request.headers.get("authorization"))
        if token is None or not self._authenticator.is_admin(token):
            raise forbidden_error(Access("get", path="/metrics")) if token is None else Unauthorized("Unauthorized")
        store = self._server.store
        own = self._metrics.families(store.revision, store.sizes(), store.watchers())
        text = exposition([*own, *self._plane.extra_metrics()])
        return Response(text, headers={"Content-Type": CONTENT_TYPE})

    async def _review(self, request: Request, review: Review, caller: Caller) -> ASGIApp:
        if request.method != "POST":
            raise MethodNotAllowed(METHOD_NOT_ALLOWED)
        body = media.decode_body(await self._objects.read(request), request.headers.get("content-type", ""), review.kind)
        return json_response(orjson.dumps(review.complete(body, caller)), 201)

    async def _report(self, request: Request, namespace: str, name: str, token: str | None) -> ASGIApp:
        declared = request.headers.get("content-length", "")
        size = int(declared[:_LONGEST_LENGTH]) if declared.isdecimal() else 0
        body = b""
        if size <= MAX_BODY:
            try:
                body = await self._objects.read(request, MAX_BODY)
            except TooLarge:  # the report handler has an answer for that
                size = MAX_BODY + 1
        code, answer = await run_in_threadpool(self._reports, Report(namespace, name, token, max(size, len(body)), body))
        return json_response(orjson.dumps(answer), code)


def _is_report(method: str, parts: list[str]) -> bool:
    head = ["apis", kinds.TRAINJOB.group, kinds.TRAINJOB.version, "namespaces"]
    return (
        method == "POST" and len(parts) == 8 and parts[:4] == head and parts[5] == kinds.TRAINJOB.plural and parts[7] == "status"
    )


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


def access_of(request: Request, path: str, parts: list[str]) -> Access:
    """Return what a request asks for; paths of no resource are asked for as they are."""
    if review := review_at(parts):
        return Access(VERBS.get(request.method, request.method.lower()), review.group, review.plural)
    try:
        if parts[:1] not in (["api"], ["apis"]) or len(parts) < (3 if parts[0] == "api" else 4):
            raise NoSuchPath(text=True)
        target = parse_target(parts)
    except NoSuchPath:  # without permission for the path, 403 comes before 404
        return Access(VERBS.get(request.method, request.method.lower()), path=path)
    resource = target.kind.plural + (f"/{target.subresource}" if target.subresource else "")
    verb = _access_verb(request, target)
    name = target.name or (_selected_name(request) if verb in _SELECTING else "")
    return Access(verb, target.kind.group, resource, name, target.namespace_key)


def _access_verb(request: Request, target: Target) -> str:
    if target.subresource in CONNECT_SUBRESOURCES:
        return "create"  # exec, attach and port-forward give a shell: a right to read is not enough
    if target.name or request.method not in ("GET", "HEAD", "DELETE"):
        return VERBS.get(request.method, request.method.lower())
    if request.method == "DELETE":
        return "deletecollection"
    return "watch" if parse_boolean(request.query_params.get("watch")) else "list"


def _selected_name(request: Request) -> str:
    """The name that a field selector requires: rules with names grant it."""
    try:
        terms = field_terms(request.query_params.get("fieldSelector") or "")
    except BadRequest:  # the list itself reports the invalid selector
        return ""
    return next((value for path, value, is_equal in terms if path == _NAME_FIELD and is_equal), "")
