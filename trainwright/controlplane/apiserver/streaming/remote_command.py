"""exec and attach over WebSocket channels, as in kubectl and the official clients; here also port-forward is validated and upgraded.

All validation happens before the connection is upgraded. A message is one channel byte followed by data. Version 5 of the protocol
adds a message that closes standard input.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass

import orjson
from starlette.datastructures import QueryParams
from starlette.types import ASGIApp, Receive, Scope, Send

from trainwright.api.errors import BadRequest
from trainwright.api.objects import Obj
from trainwright.controlplane.apiserver.resources.registry import Target
from trainwright.controlplane.apiserver.streaming.container_logs import container_of
from trainwright.controlplane.apiserver.streaming.port_forward import SPDY, V4, ChannelForward, SpdyForward, parse_ports
from trainwright.controlplane.apiserver.streaming.sessions import (
    STDERR,
    STDOUT,
    CommandRequest,
    Session,
    Sessions,
    check_assigned,
)
from trainwright.controlplane.apiserver.streaming.websocket import ConnectionClosed, OpenStreams, WebSocket, negotiate_protocol
from trainwright.controlplane.apiserver.verbs.resource_server import ResourceServer
from trainwright.controlplane.apiserver.wire.requests import Request, parse_boolean

V5 = "v5.channel.k8s.io"
PROTOCOLS = (V5, V4)
_STDIN, _ERROR, _RESIZE, _CLOSE = 0, 3, 4, 255
STILL_THERE_SECONDS = 5.0
"""Interval of empty messages while the command does not read its input: only sending detects a disconnected client then."""
log = logging.getLogger(__name__)


async def open_pod_session(
    request: Request, server: ResourceServer, sessions: Sessions, streams: OpenStreams, target: Target
) -> ASGIApp:
    """The response to an `exec`, `attach` or `portforward` handshake. Raises ApiError."""
    pod = server.get(target.kind, target.namespace_key, target.name).object
    if target.subresource == "portforward":
        return _forward(request, sessions, streams, pod, target.name)
    options = CommandOptions.parse(request.query_params, command_needed=target.subresource == "exec")
    container = container_of(pod, options.container)
    check_assigned(pod, target.name)
    if target.subresource == "attach":
        sessions.check_attach(pod, container, options.wanted)
        protocol = _protocol(request, PROTOCOLS)
        session = await sessions.attach(pod, container)
    else:
        sessions.check_exec(pod, container)
        protocol = _protocol(request, PROTOCOLS)
        session = await sessions.exec(pod, container, options.command, options.wanted)
    return RemoteCommand(protocol, streams, session, options.wanted)


def _forward(request: Request, sessions: Sessions, streams: OpenStreams, pod: Obj, name: str) -> ASGIApp:
    ports = parse_ports(request.query_params.getlist("ports"))
    check_assigned(pod, name)
    sessions.check_forward(pod)
    protocol = _protocol(request, (SPDY, V4))
    if protocol == SPDY:
        return SpdyForward(streams, sessions, pod)
    if not ports:
        raise BadRequest('query parameter "ports" is required')
    return ChannelForward(streams, sessions, pod, ports)


def _protocol(request: Request, spoken: tuple[str, ...]) -> str:
    if "subprotocols" in request.scope:
        return negotiate_protocol(request.scope, spoken)
    if request.headers.get("upgrade", "").lower().startswith("spdy/"):
        raise BadRequest(
            f"unable to upgrade to {request.headers['upgrade']}: this server requires WebSockets ({', '.join(spoken)}), "
            "which kubectl supports since 1.31"
        )
    raise BadRequest("Upgrade request required")


@dataclass(frozen=True)
class CommandOptions:
    """The parameters of `pods/NAME/exec` and `attach`. The command is never logged: it may contain a secret."""

    wanted: CommandRequest
    container: str | None
    command: list[str]

    @classmethod
    def parse(cls, query: QueryParams, *, command_needed: bool) -> CommandOptions:
        """Parse query parameters. Raises BadRequest."""
        tty = parse_boolean(query.get("tty"))
        asked = {name: parse_boolean(query.get(name)) for name in ("stdin", "stdout", "stderr")}
        if not any(asked.values()):
            raise BadRequest("you must specify at least 1 of stdin, stdout, stderr")
        if tty:
            asked["stderr"] = False  # a terminal has a single output
        command = query.getlist("command")
        if command_needed and not command:
            raise BadRequest("you must specify at least one command for the container")
        return cls(CommandRequest(**asked, tty=tty), query.get("container") or None, command)


class RemoteCommand:
    """The response to a handshake: forwards the session's streams, then sends its exit status."""

    def __init__(self, protocol: str, streams: OpenStreams, session: Session, wanted: CommandRequest):
        self._protocol, self._streams, self._session, self._wanted = protocol, streams, session, wanted

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with WebSocket(receive, send, self._streams, self._protocol) as socket:
                # An empty message signals the start of the session.
                await socket.send(bytes([STDOUT if self._wanted.stdout else STDERR if self._wanted.stderr else _ERROR]))
                await self._run(socket)
        except ConnectionClosed:
            log.debug("event=remote_command_client_gone")
        finally:
            await self._session.end()

    async def _run(self, socket: WebSocket) -> None:
        output = asyncio.ensure_future(self._send_output(socket))
        rest = [asyncio.ensure_future(self._take_input(socket)), asyncio.ensure_future(socket.until_stopped())]
        try:
            await asyncio.wait([output, *rest], return_when=asyncio.FIRST_COMPLETED)
            if output.done():
                await output
        finally:
            for task in (output, *rest):
                task.cancel()
            await asyncio.gather(output, *rest, return_exceptions=True)

    async def _send_output(self, socket: WebSocket) -> None:
        while (part := await self._session.read()) is not None:
            stream, data = part
            if (self._wanted.stdout, self._wanted.stderr)[stream - 1]:
                await socket.send(bytes([stream]) + data)
        await socket.send(bytes([_ERROR]) + orjson.dumps(_status(await self._session.exit_code())))

    async def _take_input(self, socket: WebSocket) -> None:
        """Process messages until the client disconnects: input, closed channels, terminal sizes."""
        while (message := await socket.receive()) is not None:
            channel, data = message[:1], message[1:]
            if channel == bytes([_STDIN]) and self._wanted.stdin and data:
                await self._write(socket, data)
            elif channel == bytes([_RESIZE]):
                self._resize(data)
            elif channel == bytes([_CLOSE]) and self._protocol == V5 and data == bytes([_STDIN]):
                await self._session.close_stdin()

    async def _write(self, socket: WebSocket, data: bytes) -> None:
        writing = asyncio.ensure_future(self._session.write(data))
        try:
            while not (await asyncio.wait([writing], timeout=STILL_THERE_SECONDS))[0]:
                await socket.send(bytes([STDOUT]))
            await writing
        finally:
            writing.cancel()

    def _resize(self, data: bytes) -> None:
        with contextlib.suppress(ValueError, KeyError, TypeError):  # ignore malformed sizes
            size = orjson.loads(data)
            width, height = int(size["Width"]), int(size["Height"])
            if 0 < width < 1 << 16 and 0 < height < 1 << 16:
                self._session.resize(width, height)


def _status(code: int) -> Obj:
    """The Status for the error channel."""
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: exit status {code}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }
