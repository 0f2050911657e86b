"""port-forward for kubectl: SPDY tunneled through a WebSocket, with a data and an error stream per connection."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass, field

from starlette.types import Receive, Scope, Send

from trainwright.api.objects import Obj
from trainwright.controlplane.apiserver.streaming.channel import Channel
from trainwright.controlplane.apiserver.streaming.open_streams import OpenStreams
from trainwright.controlplane.apiserver.streaming.port_forward import CHUNK, forward_error, parse_port, write_or_abort
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
from trainwright.controlplane.apiserver.streaming.websocket import ConnectionClosed, WebSocket

PROTOCOL = "SPDY/3.1+portforward.k8s.io"
MOST_STREAMS = 512
_WAITING_CHUNKS = 16
"""Queued chunks for a connection that does not read; if full, all connections of the client block."""
CREATION_SECONDS = 30.0
"""Time limit for the second stream of a connection."""
log = logging.getLogger(__name__)


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
            async with WebSocket(receive, send, self._open_streams, PROTOCOL) as socket:
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
        except SpdyError as error:
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
            return
        self._last = frame.stream
        if len(self._streams) >= self._most_streams:
            await self._send(Reset(frame.stream, REFUSED_STREAM))
            return
        self._streams[frame.stream] = stream
        await self._send(SynReply(frame.stream, {}))
        if frame.fin:
            await stream.arrived.put(b"")
        kind = stream.headers["streamtype"]
        pair = self._pair_of(stream)
        if getattr(pair, kind) is not None:
            await self._reset(stream, PROTOCOL_ERROR)
            return
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
        except TimeoutError:
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
        except OSError as failure:
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
                return
        if data.reset:
            writer.transport.abort()
        elif writer.can_write_eof() and not writer.is_closing():
            with contextlib.suppress(OSError):
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


def _is_valid(headers: dict[str, str]) -> bool:
    is_named = headers.get("streamtype") in ("data", "error") and bool(headers.get("requestid"))
    return is_named and parse_port(headers.get("port", "")) is not None
