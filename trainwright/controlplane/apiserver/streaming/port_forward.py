"""port-forward over a WebSocket, in both of its forms.

The official Python client uses channels (v4.channel.k8s.io): two per requested port. kubectl tunnels SPDY, with a data and an error
stream per connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections import deque
from dataclasses import dataclass, field

from starlette.types import Receive, Scope, Send

from trainwright.api.errors import BadRequest
from trainwright.api.integers import parse_count
from trainwright.api.objects import Obj, name_of, uid_of
from trainwright.controlplane.apiserver.streaming.sessions import Sessions
from trainwright.controlplane.apiserver.streaming.spdy import (
    CANCEL,
    PROTOCOL_ERROR,
    REFUSED_STREAM,
    Data,
    Frame,
    GoAway,
    Ping,
    Reader,
    Reset,
    SpdyError,
    SynReply,
    SynStream,
    Writer,
)
from trainwright.controlplane.apiserver.streaming.websocket import ConnectionClosed, OpenStreams, WebSocket

V4 = "v4.channel.k8s.io"
CHUNK = 32 * 1024
STALLED_SECONDS = 30.0
"""Maximum time that a pod may not read; it blocks the client's other connections meanwhile."""
_MOST_PORTS = 100
"""Each port takes two channels, and channel numbers are one byte."""
SPDY = "SPDY/3.1+portforward.k8s.io"
MOST_STREAMS = 512
_WAITING_CHUNKS = 16
"""Queued chunks for a connection that does not read; if full, all connections of the client block."""
CREATION_SECONDS = 30.0
"""Time limit for the second stream of a connection."""
log = logging.getLogger(__name__)


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
        except OSError as error:  # nothing listens: said in the error channel, the other ports are served
            await socket.send(bytes([2 * index + 1]) + forward_error(self._pod, port, error))
            return None
        return reader

    async def _send_output(self, socket: WebSocket, index: int, reader: asyncio.StreamReader) -> None:
        try:
            while data := await reader.read(CHUNK):
                await socket.send(bytes([2 * index]) + data)
        except OSError as error:  # the pod has broken the connection off
            await socket.send(bytes([2 * index + 1]) + forward_error(self._pod, self._ports[index], error))

    async def _take_input(self, socket: WebSocket) -> None:
        while (message := await socket.receive()) is not None:
            writer = self._writers.get(message[0] // 2) if message and message[0] % 2 == 0 else None
            if writer is not None:
                await write_or_abort(writer, message[1:])


async def _all(tasks: list[asyncio.Task[None]]) -> None:
    await asyncio.gather(*tasks)


class SpdyForward:
    """The response to a handshake: serves the connections that the client opens, until it disconnects."""

    def __init__(
        self,
        streams: OpenStreams,
        sessions: Sessions,
        pod: Obj,
        *,
        creation_seconds: float = CREATION_SECONDS,
        most_streams: int = MOST_STREAMS,
    ):
        self._open_streams, self._sessions, self._pod = streams, sessions, pod
        self._creation_seconds, self._most_streams = creation_seconds, most_streams
        self._writer, self._lock = Writer(), asyncio.Lock()
        self._streams: dict[int, _Stream] = {}
        self._pairs: dict[str, _Pair] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._last = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with WebSocket(receive, send, self._open_streams, SPDY) as socket:
                self._socket = socket
                await self._run()
        except ConnectionClosed:
            log.debug("event=port_forward_client_gone")
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _run(self) -> None:
        reading = asyncio.ensure_future(self._read())
        stopped = asyncio.ensure_future(self._socket.until_stopped())
        try:
            await asyncio.wait([reading, stopped], return_when=asyncio.FIRST_COMPLETED)
            if reading.done():
                await reading
            else:
                await self._send(GoAway(self._last))
        finally:
            for task in (reading, stopped):
                task.cancel()
            await asyncio.gather(reading, stopped, return_exceptions=True)

    async def _read(self) -> None:
        reader = Reader()
        try:
            while (message := await self._socket.receive()) is not None:
                for frame in reader.feed(message):
                    await self._take(frame)
        except SpdyError as error:  # the rest of the stream cannot be decoded
            log.info("event=port_forward_broken error=%s", error)
            await self._send(GoAway(self._last, PROTOCOL_ERROR))

    async def _take(self, frame: Frame) -> None:
        match frame:
            case SynStream():
                await self._open(frame)
            case Data(number, data, fin):
                await self._arrive(number, data, fin)
            case Reset(number):
                self._forget(number)
            case Ping(number) if number % 2:  # odd numbers are the client's; the server sends none
                await self._send(frame)

    async def _open(self, frame: SynStream) -> None:
        stream = _Stream(frame.stream, dict(frame.headers))
        if frame.stream <= self._last or frame.stream % 2 == 0 or not _is_valid(stream.headers):
            await self._send(Reset(frame.stream, PROTOCOL_ERROR))
            return  # a number that goes back, or one of the server, or no port
        self._last = frame.stream
        if len(self._streams) >= self._most_streams:
            await self._send(Reset(frame.stream, REFUSED_STREAM))
            return  # the client may close others, and try again
        self._streams[frame.stream] = stream
        await self._send(SynReply(frame.stream, {}))
        if frame.fin:
            await stream.arrived.put(b"")
        kind = stream.headers["streamtype"]
        pair = self._pair_of(stream)
        if getattr(pair, kind) is not None:
            await self._reset(stream, PROTOCOL_ERROR)
            return  # a request has one stream of each kind
        setattr(pair, kind, stream)
        if pair.data and pair.error:
            pair.complete.set()

    def _pair_of(self, stream: _Stream) -> _Pair:
        """The pair with the client's request ID."""
        key = stream.headers["requestid"]
        if key not in self._pairs:
            self._pairs[key] = pair = _Pair()
            task = asyncio.ensure_future(self._serve(key, pair))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return self._pairs[key]

    async def _serve(self, key: str, pair: _Pair) -> None:
        """Serve one connection once both streams are open."""
        try:
            async with asyncio.timeout(self._creation_seconds):
                await pair.complete.wait()
        except TimeoutError:  # the other stream of the pair has not come
            for stream in filter(None, (pair.data, pair.error)):
                await self._reset(stream, CANCEL)
            return
        finally:
            del self._pairs[key]
        assert pair.data is not None
        assert pair.error is not None
        with contextlib.suppress(ConnectionClosed):  # `_read` detects it too
            await self._forward(pair.data, pair.error)

    async def _forward(self, data: _Stream, error: _Stream) -> None:
        port = int(data.headers["port"])
        try:
            reader, writer = await self._sessions.connect(self._pod, port)
        except OSError as failure:  # nothing listens in the pod: told on the error stream, as a kubelet does
            await self._send(Data(error.number, forward_error(self._pod, port, failure)))
        else:
            upload = asyncio.ensure_future(self._upload(data, writer))
            try:
                while not data.reset and (chunk := await reader.read(CHUNK)):
                    await self._send(Data(data.number, chunk))
            except OSError as broken:
                await self._send(Data(error.number, forward_error(self._pod, port, broken)))
            finally:
                upload.cancel()
                await asyncio.gather(upload, return_exceptions=True)
                if data.reset:
                    writer.transport.abort()
                else:
                    writer.close()
        await self._finish(data)
        await self._finish(error)

    async def _upload(self, data: _Stream, writer: asyncio.StreamWriter) -> None:
        while chunk := await data.arrived.get():
            if not await write_or_abort(writer, chunk):
                await self._reset(data, CANCEL)
                return  # the pod does not read any more
        if data.reset:
            writer.transport.abort()
        elif writer.can_write_eof() and not writer.is_closing():
            with contextlib.suppress(OSError):  # the pod has closed it
                writer.write_eof()

    async def _arrive(self, number: int, data: bytes, fin: bool) -> None:
        stream = self._streams.get(number)
        if stream is None or stream.headers["streamtype"] == "error":
            return  # already closed by the server; clients send no data on error streams
        for start in range(0, len(data), CHUNK):
            await stream.arrived.put(data[start : start + CHUNK])
        if fin:
            await stream.arrived.put(b"")

    async def _finish(self, stream: _Stream) -> None:
        """Close the sending side of a stream and remove it."""
        if not stream.reset and not stream.finished:
            stream.finished = True
            await self._send(Data(stream.number, b"", fin=True))
        stream.arrived.close()
        self._streams.pop(stream.number, None)

    async def _reset(self, stream: _Stream, reason: int) -> None:
        if not stream.reset:
            await self._send(Reset(stream.number, reason))
        self._forget(stream.number)

    def _forget(self, number: int) -> None:
        if (stream := self._streams.pop(number, None)) is not None:
            stream.reset = True
            stream.arrived.close()

    async def _send(self, frame: Frame) -> None:
        async with self._lock:  # header compression requires encoding in sending order
            await self._socket.send(self._writer.bytes_of(frame))


@dataclass
class _Stream:
    number: int
    headers: dict[str, str]
    arrived: Channel = field(default_factory=lambda: Channel(_WAITING_CHUNKS))
    """Data from the client; an empty chunk marks the end."""
    reset: bool = False
    finished: bool = False


@dataclass
class _Pair:
    data: _Stream | None = None
    error: _Stream | None = None
    complete: asyncio.Event = field(default_factory=asyncio.Event)


def _is_valid(headers: dict[str, str]) -> bool:
    is_named = headers.get("streamtype") in ("data", "error") and bool(headers.get("requestid"))
    return is_named and parse_port(headers.get("port", "")) is not None


def parse_port(text: str) -> int | None:
    """Return a port; None for a text that is none."""
    port = parse_count(text)
    return port if port is not None and 0 < port < 1 << 16 else None


def forward_error(pod: Obj, port: int, error: OSError) -> bytes:
    """The message on the error channel if connecting to a port fails."""
    why = os.strerror(error.errno) if error.errno else str(error)
    return f"error forwarding port {port} to pod {name_of(pod)}, uid {uid_of(pod)}: {why}".encode()


async def write_or_abort(writer: asyncio.StreamWriter, data: bytes) -> bool:
    """Write to a connection of the pod; aborts a stalled connection. Returns whether the data was written."""
    try:
        async with asyncio.timeout(STALLED_SECONDS):
            writer.write(data)
            await writer.drain()
    except (OSError, TimeoutError) as error:  # broken off, or the pod does not read
        log.debug("event=port_forward_ended error=%s", type(error).__name__)
        writer.transport.abort()
        return False
    return True


class Channel:
    """A queue for one event loop and one reader. An empty chunk marks the end."""

    def __init__(self, most: int):
        self._most = most
        self._pieces: deque[bytes] = deque()
        self._ready, self._room = asyncio.Event(), asyncio.Event()
        self._closed = False

    async def put(self, piece: bytes) -> None:
        """Add a chunk, waiting while the queue is full; dropped after `close`."""
        while len(self._pieces) >= self._most and not self._closed:
            self._room.clear()
            await self._room.wait()
        if not self._closed:
            self._pieces.append(piece)
            self._ready.set()

    async def get(self) -> bytes:
        while not self._pieces:
            if self._closed:
                return b""
            self._ready.clear()
            await self._ready.wait()
        self._room.set()
        return self._pieces.popleft()

    def close(self) -> None:
        """Stop reading: discard queued chunks and release waiting writers."""
        self._closed = True
        self._pieces.clear()
        self._ready.set()
        self._room.set()
