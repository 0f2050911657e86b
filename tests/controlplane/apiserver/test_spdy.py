"""SPDY frames, whatever is sent, and port-forward over them with a client that counts bytes, breaks rules or goes."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import struct
import zlib
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.controlplane.apiserver.streaming.port_forward import SPDY, SpdyForward
from trainwright.controlplane.apiserver.streaming.spdy import (
    CANCEL,
    CONTROL_BYTES,
    DICTIONARY,
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
from trainwright.controlplane.apiserver.streaming.websocket import OpenStreams

NUMBERS = st.integers(0, (1 << 31) - 1)
HEADERS = st.dictionaries(st.text("abc-é", min_size=1, max_size=8), st.text(max_size=30), max_size=5)
FRAMES = st.lists(
    st.one_of(
        *(st.builds(kind, NUMBERS, HEADERS, st.booleans()) for kind in (SynStream, SynReply)),
        st.builds(Data, NUMBERS, st.binary(max_size=200), st.booleans()),
        *(st.builds(kind, NUMBERS, NUMBERS) for kind in (Reset, GoAway)),
        st.builds(Ping, NUMBERS),
    ),
    max_size=12,
)


def written(frames: list[Frame]) -> bytes:
    writer = Writer()
    return b"".join(writer.bytes_of(frame) for frame in frames)


def joined(frames: list[Frame]) -> list[Frame]:
    """With the pieces of data frames put together, where one follows the other."""
    found: list[Frame] = []
    for frame in frames:
        before = found[-1] if found else None
        if isinstance(frame, Data) and isinstance(before, Data) and before.stream == frame.stream and not before.fin:
            found[-1] = Data(frame.stream, before.data + frame.data, frame.fin)
        else:
            found.append(frame)
    return found


def test_the_dictionary_is_that_of_the_protocol() -> None:
    assert (len(DICTIONARY), zlib.adler32(DICTIONARY)) == (1423, 0xE3C6A7C2)


@pytest.mark.medium
@given(FRAMES, st.lists(st.integers(0, 500), max_size=10))
def test_property_frames_come_through_however_they_are_cut(frames: list[Frame], cuts: list[int]) -> None:
    data, reader = written(frames), Reader()
    edges = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    pieces = [data[start:end] for start, end in itertools.pairwise(edges)]
    assert joined([frame for piece in pieces for frame in reader.feed(piece)]) == joined(frames)


@given(st.lists(st.binary(max_size=300), max_size=5))
def test_property_no_bytes_are_too_odd(pieces: list[bytes]) -> None:
    read_all(pieces)


@pytest.mark.medium
@given(FRAMES, st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), min_size=1, max_size=4))
def test_property_damaged_frames_are_read_or_refused(frames: list[Frame], damage: list[tuple[int, int]]) -> None:
    data = bytearray(written(frames))
    for place, value in damage:
        if place < len(data):
            data[place] = value
    read_all([bytes(data)])


def read_all(pieces: list[bytes]) -> None:
    reader = Reader()
    with contextlib.suppress(SpdyError):
        for piece in pieces:
            list(reader.feed(piece))
    assert len(reader._buffer) <= CONTROL_BYTES + 8


def control(kind: int, payload: bytes, version: int = 3) -> bytes:
    return struct.pack(">HHI", 0x8000 | version, kind, len(payload)) + payload


def packed(block: bytes) -> bytes:
    packer = zlib.compressobj(zdict=DICTIONARY)
    return packer.compress(block) + packer.flush(zlib.Z_SYNC_FLUSH)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (control(1, b"", version=2), "version 2"),
        (struct.pack(">HHI", 0x8003, 6, CONTROL_BYTES + 1), "65537 bytes"),
        (control(6, b"\0"), "type 6"),
        (control(1, bytes(10) + b"not zlib"), "type 1"),
        (control(2, bytes(4) + packed(bytes(CONTROL_BYTES + 1))), "headers too large"),
        (control(2, bytes(4) + packed(struct.pack(">II", 1, 99) + b"ab")), "exceeds its frame"),
        (control(2, bytes(4) + packed(struct.pack(">II", 1, 1) + b"\xff" + bytes(4))), "type 2"),
    ],
)
def test_reader_refuses_invalid_frames(data: bytes, why: str) -> None:
    with pytest.raises(SpdyError, match=why):
        list(Reader().feed(data))


class Echo:
    """Pods whose port 7 echoes, 8 talks without end, 9 is closed."""

    def __init__(self) -> None:
        self.open = 0

    async def connect(self, pod: dict[str, Any], port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if port == 9:
            raise ConnectionRefusedError(111, "Connection refused")
        server = await asyncio.start_server(self.talk if port == 8 else self.echo, "127.0.0.1", 0)
        async with server:
            return await asyncio.open_connection(*server.sockets[0].getsockname())

    async def echo(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        try:
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        finally:
            self.open -= 1
            writer.close()

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        try:
            while True:
                writer.write(bytes(1 << 16))
                await writer.drain()
        except OSError:
            pass
        finally:
            self.open -= 1
            writer.close()


class Client:
    """The other end of a tunnel."""

    def __init__(self) -> None:
        self.writer, self.reader = Writer(), Reader()
        self.sent: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.answers: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.frames: list[Frame] = []
        self.node = Echo()
        self.streams = OpenStreams()

    async def send(self, *frames: Frame) -> None:
        for frame in frames:
            await self.raw(self.writer.bytes_of(frame))

    async def raw(self, data: bytes) -> None:
        await self.sent.put({"type": "websocket.receive", "bytes": data})

    async def leave(self) -> None:
        await self.sent.put({"type": "websocket.disconnect"})

    async def until(self, done: Callable[[list[Frame]], object]) -> list[Frame]:
        """All frames so far, once they are enough."""
        async with asyncio.timeout(10):
            while not done(self.frames):
                message = await self.answers.get()
                if message["type"] == "websocket.send":
                    self.frames += self.reader.feed(message["bytes"])
                elif message["type"] == "websocket.close":
                    self.frames.append(GoAway(0, message["code"]))
        return self.frames

    def data(self, stream: int) -> bytes:
        return b"".join(frame.data for frame in self.frames if isinstance(frame, Data) and frame.stream == stream)

    async def open(self, port: int, request: int, first: int = 1) -> None:
        common = {"port": str(port), "requestid": str(request)}
        await self.send(SynStream(first, {"streamtype": "error", **common}), Data(first, b"", fin=True))
        await self.send(SynStream(first + 2, {"streamtype": "data", **common}))


def forwarding(talk: Callable[[Client], Coroutine[Any, Any, None]], most: int = 0, **limits: Any) -> Client:
    """Let a client talk to a forward, and end both."""

    async def both() -> Client:
        client = Client()
        client.answers = asyncio.Queue(most)
        pod = {"metadata": {"name": "p", "uid": "u"}}
        forward = SpdyForward(client.streams, client.node, pod, **limits)  # type: ignore[arg-type]
        serving = asyncio.ensure_future(forward({}, client.sent.get, client.answers.put))
        try:
            await talk(client)
            await client.leave()
            client.answers = asyncio.Queue() if not most else client.answers
            async with asyncio.timeout(10):
                while not serving.done():
                    while not client.answers.empty():
                        client.answers.get_nowait()
                    await asyncio.wait([serving], timeout=0.01)
            await serving
        finally:
            serving.cancel()
        return client

    return asyncio.run(both())


def has(frame: Frame) -> Callable[[list[Frame]], bool]:
    return lambda frames: frame in frames


def test_a_connection_from_its_opening_to_its_end() -> None:
    async def talk(client: Client) -> None:
        await client.open(7, 0)
        await client.send(Data(3, b"hello "), Data(3, b"world", fin=True))
        await client.until(lambda frames: Data(3, b"", fin=True) in frames and Data(1, b"", fin=True) in frames)
        assert client.data(3) == b"hello world"
        assert SynReply(1, {}) in client.frames
        assert client.data(1) == b""

    forwarding(talk)


def test_a_refused_port_is_said_on_the_error_stream() -> None:
    async def talk(client: Client) -> None:
        await client.open(9, 0)
        await client.until(has(Data(1, b"", fin=True)))
        assert client.data(1) == b"error forwarding port 9 to pod p, uid u: Connection refused"

    forwarding(talk)


def test_pings_are_answered_and_what_is_not_known_is_read_over() -> None:
    async def talk(client: Client) -> None:
        await client.raw(control(10, b"credentials"))
        await client.send(Data(77, b"for a stream that is not open"), Reset(77, CANCEL), Ping(2), Ping(5))
        await client.until(has(Ping(5)))
        assert Ping(2) not in client.frames

    forwarding(talk)


def test_a_reset_ends_the_connection_and_its_pair() -> None:
    async def talk(client: Client) -> None:
        await client.open(8, 0)
        await client.until(lambda _: client.data(3))
        assert client.node.open == 1
        await client.send(Reset(3, CANCEL))
        await client.until(has(Data(1, b"", fin=True)))

    assert forwarding(talk).node.open == 0


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (SynStream(2, {"streamtype": "data", "port": "7", "requestid": "1"}), PROTOCOL_ERROR),
        (SynStream(1, {"streamtype": "data", "port": "7"}), PROTOCOL_ERROR),
        (SynStream(1, {"streamtype": "other", "port": "7", "requestid": "1"}), PROTOCOL_ERROR),
        (SynStream(1, {"streamtype": "data", "requestid": "1"}), PROTOCOL_ERROR),
        (SynStream(1, {"streamtype": "data", "port": "70000", "requestid": "1"}), PROTOCOL_ERROR),
        (SynStream(1, {"streamtype": "data", "port": "²", "requestid": "1"}), PROTOCOL_ERROR),
    ],
)
def test_streams_that_make_no_sense_are_reset(frame: SynStream, reason: int) -> None:
    async def talk(client: Client) -> None:
        await client.send(frame)
        await client.until(has(Reset(frame.stream, reason)))

    forwarding(talk)


def test_a_pair_has_one_stream_of_each_kind() -> None:
    async def talk(client: Client) -> None:
        await client.open(7, 0)
        await client.send(SynStream(5, {"streamtype": "data", "port": "7", "requestid": "1"}))
        await client.send(SynStream(7, {"streamtype": "data", "port": "7", "requestid": "1"}))
        await client.until(has(Reset(7, PROTOCOL_ERROR)))

    forwarding(talk)


def test_half_a_pair_does_not_wait_for_ever() -> None:
    async def talk(client: Client) -> None:
        await client.send(SynStream(1, {"streamtype": "data", "port": "7", "requestid": "1"}))
        await client.until(has(Reset(1, CANCEL)))

    forwarding(talk, creation_seconds=0.05)


def test_there_are_only_so_many_streams() -> None:
    async def talk(client: Client) -> None:
        await client.open(7, 0)
        await client.open(7, 1, first=5)
        await client.until(has(Reset(7, REFUSED_STREAM)))

    forwarding(talk, most_streams=2)


def test_bytes_that_are_no_spdy_end_it() -> None:
    async def talk(client: Client) -> None:
        await client.raw(b"\x80\x02" * 20)
        await client.until(lambda frames: any(isinstance(frame, GoAway) and frame.reason == PROTOCOL_ERROR for frame in frames))

    forwarding(talk)


@pytest.mark.medium
def test_a_connection_that_is_not_read_does_not_hold_more_than_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainwright.controlplane.apiserver.streaming.port_forward.STALLED_SECONDS", 0.2)

    async def talk(client: Client) -> None:
        await client.open(8, 0)  # says much and reads nothing
        for _ in range(40):
            await client.send(Data(3, bytes(1 << 20)))
        assert client.sent.qsize() > 5
        await client.until(lambda frames: any(isinstance(frame, Reset) for frame in frames))
        await client.send(Ping(1))
        await client.until(has(Ping(1)))  # the others go on

    assert forwarding(talk).node.open == 0


def test_the_protocol_is_named_as_kubectl_asks_for_it() -> None:
    assert SPDY == "SPDY/3.1+portforward.k8s.io"
