"""port-forward over WebSocket channels (v4.channel.k8s.io), as in the official Python client: two channels per requested port."""

from __future__ import annotations

import asyncio
import logging
import os

from starlette.types import Receive, Scope, Send

from trainwright.api.errors import BadRequest
from trainwright.api.integers import parse_count
from trainwright.api.objects import Obj, name_of, uid_of
from trainwright.controlplane.apiserver.streaming.open_streams import OpenStreams
from trainwright.controlplane.apiserver.streaming.sessions import Sessions
from trainwright.controlplane.apiserver.streaming.websocket import ConnectionClosed, WebSocket

V4 = "v4.channel.k8s.io"
CHUNK = 32 * 1024
STALLED_SECONDS = 30.0
"""Maximum time that a pod may not read; it blocks the client's other connections meanwhile."""
_MOST_PORTS = 100
"""Each port takes two channels, and channel numbers are one byte."""
log = logging.getLogger(__name__)


def parse_port(text: str) -> int | None:
    """Return a port; None for a text that is none."""
    port = parse_count(text)
    return port if port is not None and 0 < port < 1 << 16 else None


def parse_ports(texts: list[str]) -> list[int]:
    """Parse the `ports` query parameters. Raises BadRequest."""
    ports = []
    for text in (text for joined in texts for text in joined.split(",")):
        port = parse_port(text)
        if port is None:
            raise BadRequest(f'unable to parse "{text}" as a port: must be a number from 1 to 65535')
        ports.append(port)
    if len(ports) > _MOST_PORTS:
        raise BadRequest(f"too many ports: {len(ports)}, must be at most {_MOST_PORTS}")
    return ports


def forward_error(pod: Obj, port: int, error: OSError) -> bytes:
    """The message on the error channel if connecting to a port fails."""
    why = os.strerror(error.errno) if error.errno else str(error)
    return f"error forwarding port {port} to pod {name_of(pod)}, uid {uid_of(pod)}: {why}".encode()


class ChannelForward:
    """The response to a handshake: opens one connection per port and forwards data until they end."""

    def __init__(self, streams: OpenStreams, sessions: Sessions, pod: Obj, ports: list[int]):
        self._streams, self._sessions, self._pod, self._ports = streams, sessions, pod, ports
        self._writers: dict[int, asyncio.StreamWriter] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with WebSocket(receive, send, self._streams, V4) as socket:
                for index, port in enumerate(self._ports):
                    for channel in (2 * index, 2 * index + 1):
                        await socket.send(bytes([channel]) + port.to_bytes(2, "little"))
                await self._run(socket)
        except ConnectionClosed:
            log.debug("event=port_forward_client_gone")
        finally:
            for writer in self._writers.values():
                writer.transport.abort()

    async def _run(self, socket: WebSocket) -> None:
        outputs = [
            asyncio.ensure_future(self._send_output(socket, index, reader))
            for index, port in enumerate(self._ports)
            if (reader := await self._connect(socket, index, port)) is not None
        ]
        rest = [asyncio.ensure_future(self._take_input(socket)), asyncio.ensure_future(socket.until_stopped())]
        forwards = asyncio.ensure_future(_all(outputs))
        try:
            await asyncio.wait([forwards, *rest], return_when=asyncio.FIRST_COMPLETED)
            if forwards.done():
                await forwards
        finally:
            for task in (forwards, *outputs, *rest):
                task.cancel()
            await asyncio.gather(forwards, *outputs, *rest, return_exceptions=True)

    async def _connect(self, socket: WebSocket, index: int, port: int) -> asyncio.StreamReader | None:
        try:
            reader, self._writers[index] = await self._sessions.connect(self._pod, port)
        except OSError as error:
            await socket.send(bytes([2 * index + 1]) + forward_error(self._pod, port, error))
            return None
        return reader

    async def _send_output(self, socket: WebSocket, index: int, reader: asyncio.StreamReader) -> None:
        try:
            while data := await reader.read(CHUNK):
                await socket.send(bytes([2 * index]) + data)
        except OSError as error:
            await socket.send(bytes([2 * index + 1]) + forward_error(self._pod, self._ports[index], error))

    async def _take_input(self, socket: WebSocket) -> None:
        while (message := await socket.receive()) is not None:
            writer = self._writers.get(message[0] // 2) if message and message[0] % 2 == 0 else None
            if writer is not None:
                await write_or_abort(writer, message[1:])


async def _all(tasks: list[asyncio.Task[None]]) -> None:
    await asyncio.gather(*tasks)


async def write_or_abort(writer: asyncio.StreamWriter, data: bytes) -> bool:
    """Write to a connection of the pod; aborts a stalled connection. Returns whether the data was written."""
    try:
        async with asyncio.timeout(STALLED_SECONDS):
            writer.write(data)
            await writer.drain()
    except (OSError, TimeoutError) as error:
        log.debug("event=port_forward_ended error=%s", type(error).__name__)
        writer.transport.abort()
        return False
    return True
