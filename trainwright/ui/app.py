"""The ASGI application of the page: static files, sessions, and a JSON API below `/ui/api/`.

Every response has a strict content security policy, and every request of the API a session's token in a header. In a browser of
another site, neither can be forged or read: no cookie, no CORS, and no other name than those that the server is known by.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import aclosing, contextmanager

import orjson
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Match, Route, Router
from starlette.types import Receive, Scope, Send

from trainwright.api.errors import ApiError, BadRequest, NotFound, TooManyRequests, Unauthorized
from trainwright.ui.access import LinkLogin, Login
from trainwright.ui.call import EXPECTED, Call, Endpoint, Json, Page, Problem, Stream, problem_of
from trainwright.ui.features import Features
from trainwright.ui.sessions import Session, Sessions
from trainwright.ui.static_files import StaticFile, read_static_files

PREFIX = "/ui"
LOOPBACK_NAMES = frozenset({"127.0.0.1", "localhost", "[::1]"})
"""The names in `Host` that a server on loopback answers to: another name that resolves to this machine is an attack."""
IMPORT_MAP = "'sha256-kknKm/K4q1EjbXWw0fhClJ00KkJu3iQ4t5STYap74ns='"
"""The one inline script: the import map of index.html, which browsers read from nowhere else."""
HEADERS = {
    "Content-Security-Policy": f"default-src 'none'; script-src 'self' {IMPORT_MAP}; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_MAX_BODY = 1024 * 1024
_BODY_SECONDS = 30
_MAX_STREAMS = 24
"""Of one user at a time: a browser opens six connections to a server."""
log = logging.getLogger(__name__)


class PageApp:
    """The application. `hosts` are the names in `Host` that it answers to, None for any: for a server behind an ingress.

    Call `close` before the server stops: it ends all streams.
    """

    def __init__(self, login: Login, page: Page, *, hosts: Collection[str] | None = None):
        self._login, self._page, self._hosts = login, page, hosts
        self._sessions = Sessions(file=page.sessions)
        self._files = read_static_files()
        self._features = Features()
        self.streams = OpenStreams(on_close=self._features.close)
        self._open_streams: Counter[str] = Counter()
        self._router = Router(list(self._routes()))

    def close(self) -> None:
        """End all streams, and stop all watches."""
        self.streams.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # there are no WebSockets, and nothing to do at the start of the server
            return
        request = Request(scope, receive)
        try:
            response = await self._answer(request)
        except ClientDisconnect:  # nobody waits for the answer
            return
        except EXPECTED as error:
            response = _problem(problem_of(error))
        except Exception:  # a defect: its text may have what users must not see
            log.exception("event=page_request_failed method=%s path=%s", request.method, request.url.path)
            response = _problem(Problem(500, "InternalError", "an internal error occurred; see the log of the server"))
        response.headers.update(HEADERS)
        response.headers.setdefault("Cache-Control", "no-store")
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        # a name that somebody has pointed to this machine (DNS rebinding)
        if self._hosts is not None and _host_of(request) not in self._hosts:
            return _problem(Problem(421, "MisdirectedRequest", "this server is not known by that name"))
        path = request.url.path
        if path in ("/", PREFIX):
            return RedirectResponse(f"{PREFIX}/", 307)
        if path.startswith(f"{PREFIX}/api/"):
            return await self._api(request)
        file = self._files.get(path.removeprefix(f"{PREFIX}/") or "index.html") if path.startswith(f"{PREFIX}/") else None
        if file is None:
            return _problem(Problem(404, "NotFound", "there is no such page"))
        return _static(request, file)

    async def _api(self, request: Request) -> Response:
        for route in self._router.routes:
            match, child = route.matches(request.scope)
            if match is Match.FULL and isinstance(route, Route):
                request.scope.update(child)
                answer: Response = await route.endpoint(request)
                return answer
        raise NotFound(f"{request.method} {request.url.path}: there is no such endpoint")

    def _routes(self) -> Iterator[Route]:
        base = f"{PREFIX}/api"
        yield Route(f"{base}/config", self._config, methods=["GET"])
        yield Route(f"{base}/proof", self._prove, methods=["POST"])
        yield Route(f"{base}/session", self._open_session, methods=["POST"])
        yield Route(f"{base}/session", self._end_session, methods=["DELETE"])
        for each in self._features.routes:
            if isinstance(each, Stream):
                yield Route(base + each.path, self._stream(each), methods=["GET"])
            else:
                yield Route(base + each.path, self._endpoint(each), methods=[each.method])

    async def _config(self, _request: Request) -> Response:
        from trainwright import __version__

        return _json({"login": self._login.kind, "version": __version__})

    async def _prove(self, request: Request) -> Response:
        """Prove that this server has a session, so that a browser sends it nowhere else. Needs none.

        A server on loopback binds the proof to its port: a program on another port cannot pass it on. Behind an ingress it knows none.
        """
        body = await _body(request)
        name, challenge = body.get("session"), body.get("challenge")
        if not isinstance(name, str) or not isinstance(challenge, str) or not challenge.isalnum():
            raise BadRequest("expected the name of a session and a challenge")
        port = request.scope["server"][1] if self._login.kind == LinkLogin.kind else ""
        proof = self._sessions.proof(name, f"{challenge}\n{port}")
        if proof is None:
            raise NotFound("there is no such session")
        return _json({"proof": proof})

    async def _open_session(self, request: Request) -> Response:
        body = await _body(request)
        token, session = await run_in_threadpool(self._login.open, self._sessions, body)
        log.info("event=page_session_opened login=%s user=%s", self._login.kind, session.user or "owner")
        return _json({"session": token, "user": session.user, "expires": session.expires})

    async def _end_session(self, request: Request) -> Response:
        self._sessions.end(_token(request))
        return _json({})

    def _endpoint(self, endpoint: Endpoint) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            call = await self._call(request, with_body=endpoint.method not in ("GET", "DELETE"))
            answered = await run_in_threadpool(endpoint.answer, call)
            return answered if isinstance(answered, Response) else _json(answered)

        return answer

    def _stream(self, stream: Stream) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            call = await self._call(request, with_body=False)
            self._check_streams(call.session.owner, 1)
            return StreamingResponse(self._lines(stream, call, _token(request)), media_type="application/x-ndjson")

        return answer

    async def _lines(self, stream: Stream, call: Call, token: str) -> AsyncIterator[bytes]:
        """Yield the messages of a stream until it, the server or the session of `token` ends. An open stream uses its session."""
        owner = call.session.owner
        with self.streams.opened() as closed:
            self._open_streams[owner] += 1
            try:
                self._check_streams(owner, 0)  # again: many requests may have come at once
                async with aclosing(stream.open(call)) as messages:
                    async for message in messages:
                        if closed.is_set() or self._sessions.find(token) is None:  # logged out in another tab, or expired
                            return
                        yield orjson.dumps(message) + b"\n"
            except EXPECTED as error:  # after the status line was sent
                problem = problem_of(error)
                yield orjson.dumps({"type": "problem", "problem": {"reason": problem.reason, "message": problem.message}}) + b"\n"
            finally:
                self._open_streams[owner] -= 1
                self._open_streams += Counter()  # without entries of zero

    def _check_streams(self, owner: str, more: int) -> None:
        """Raise TooManyRequests if a user would have too many streams with so many more."""
        if self._open_streams[owner] + more > _MAX_STREAMS:
            raise TooManyRequests(f"{_MAX_STREAMS} streams of this user are open, the limit; close some tabs of the page")

    async def _call(self, request: Request, *, with_body: bool) -> Call:
        session = await self._session(request)
        body = await _body(request) if with_body else {}
        path: Mapping[str, str] = request.path_params
        return Call(session, self._page, path, request.query_params, body)

    async def _session(self, request: Request) -> Session:
        token = _token(request)
        session = self._sessions.find(token)
        if session is None:  # perhaps of a server that was restarted since
            session = await run_in_threadpool(self._login.reopen, self._sessions, token)
        if session is None:
            raise Unauthorized("the session has ended")
        return session


class OpenStreams:
    """Counts streams, and tells all of them to end: a server that stops waits for the requests that are in flight.

    `on_close` makes those that wait for a change look. Thread-safe.
    """

    def __init__(self, *, on_close: Callable[[], None]):
        self._on_close = on_close
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @contextmanager
    def opened(self) -> Iterator[threading.Event]:
        """Count a stream; yields an event that is set when it has to end."""
        with self._lock:
            self._count += 1
        try:
            yield self._closed
        finally:
            with self._lock:
                self._count -= 1

    def close(self) -> None:
        """End all streams. Idempotent."""
        self._closed.set()
        self._on_close()


def _host_of(request: Request) -> str:
    host = request.headers.get("host", "")
    return host.rpartition(":")[0] if ":" in host.rpartition("]")[2] else host


def _token(request: Request) -> str:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token:
        raise Unauthorized("a session is needed")
    return token.strip()


async def _body(request: Request) -> Json:
    """Return the JSON object of a request. Raises BadRequest."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise BadRequest("expected a body of the type application/json")
    content = bytearray()
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            async for chunk in request.stream():
                content += chunk
                if len(content) > _MAX_BODY:
                    raise ApiError(f"the body is larger than {_MAX_BODY} bytes", code=413)
    except TimeoutError:
        raise ApiError(f"the body did not come within {_BODY_SECONDS} seconds", code=408) from None
    try:
        body = orjson.loads(bytes(content))
    except orjson.JSONDecodeError:
        raise BadRequest("the body is not valid JSON") from None
    if not isinstance(body, dict):
        raise BadRequest("expected a JSON object")
    return body


def _static(request: Request, file: StaticFile) -> Response:
    headers = {"ETag": file.etag, "Cache-Control": "no-cache"}
    if request.method not in ("GET", "HEAD"):
        return _problem(Problem(405, "MethodNotAllowed", "only GET"))
    if request.headers.get("if-none-match") == file.etag:  # the browser has it
        return Response(status_code=304, headers=headers)
    return Response(file.content, media_type=file.media_type, headers=headers)


def _json(content: object) -> Response:
    return Response(orjson.dumps(content, option=orjson.OPT_NON_STR_KEYS), media_type="application/json")


def _problem(problem: Problem) -> Response:
    content = orjson.dumps({"reason": problem.reason, "message": problem.message})
    return Response(content, problem.code, media_type="application/json")
