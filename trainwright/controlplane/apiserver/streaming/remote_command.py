"""exec and attach: a session of the node on the channels of a WebSocket, as kubectl and the official clients speak them.

A message is one byte for its channel and then data. Version 5 adds a way to say that standard input has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass

import orjson
from starlette.datastructures import QueryParams
from starlette.types import Receive, Scope, Send

from trainwright.api.errors import BadRequest
from trainwright.api.objects import Obj
from trainwright.controlplane.apiserver.streaming.open_streams import Streams
from trainwright.controlplane.apiserver.streaming.sessions import STDERR, STDOUT, Session, Wanted
from trainwright.controlplane.apiserver.streaming.websocket import Gone, WebSocket
from trainwright.controlplane.apiserver.wire.list_options import flag

V5, V4 = "v5.channel.k8s.io", "v4.channel.k8s.io"
PROTOCOLS = (V5, V4)
_STDIN, _ERROR, _RESIZE, _CLOSE = 0, 3, 4, 255
_STILL_THERE_SECONDS = 5.0
"""While a command does not read its input, nothing is received that could tell that the client has gone; sending tells."""
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class CommandOptions:
    """The parameters of `pods/NAME/exec` and `attach`. The command is never logged: it may hold a secret."""

    wanted: Wanted
    container: str | None
    command: list[str]

    @classmethod
    def parse(cls, query: QueryParams, *, command_needed: bool) -> CommandOptions:
        """Raises BadRequest."""
        tty = flag(query.get("tty"))
        asked = {name: flag(query.get(name)) for name in ("stdin", "stdout", "stderr")}
        if not any(asked.values()):
            raise BadRequest("you must specify at least 1 of stdin, stdout, stderr")
        if tty:
            asked["stderr"] = False  # a terminal has one output
        command = query.getlist("command")
        if command_needed and not command:
            raise BadRequest("you must specify at least one command for the container")
        return cls(Wanted(**asked, tty=tty), query.get("container") or None, command)


class RemoteCommand:
    """The answer to a handshake: the session's streams, and in the end how it ended."""

    def __init__(self, protocol: str, streams: Streams, session: Session, wanted: Wanted):
        self._protocol, self._streams, self._session, self._wanted = protocol, streams, session, wanted

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with WebSocket(receive, send, self._streams, self._protocol) as socket:
                # An empty message tells the client that the session has begun.
                await socket.send(bytes([STDOUT if self._wanted.stdout else STDERR if self._wanted.stderr else _ERROR]))
                await self._run(socket)
        except Gone:
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
        """Until the client goes: its input, its goodbyes to channels, the size of its terminal."""
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
            while not (await asyncio.wait([writing], timeout=_STILL_THERE_SECONDS))[0]:
                await socket.send(bytes([STDOUT]))
            await writing
        finally:
            writing.cancel()

    def _resize(self, data: bytes) -> None:
        with contextlib.suppress(ValueError, KeyError, TypeError):  # a size that is none changes nothing
            size = orjson.loads(data)
            width, height = int(size["Width"]), int(size["Height"])
            if 0 < width < 1 << 16 and 0 < height < 1 << 16:
                self._session.resize(width, height)


def _status(code: int) -> Obj:
    """How a command ended, for the error channel."""
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: exit status {code}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }
