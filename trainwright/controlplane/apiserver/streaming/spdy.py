"""Encodes and decodes SPDY/3.1 frames, which kubectl tunnels through a WebSocket for port-forward.

Supports what port-forward needs and ignores other frames: kubectl uses no flow control. See
https://www.chromium.org/spdy/spdy-protocol/spdy-protocol-draft3-1/
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

CONTROL_BYTES = 64 * 1024
"""Maximum size of a control frame and of its decompressed headers."""
PROTOCOL_ERROR, REFUSED_STREAM, CANCEL = 1, 3, 5
"""Status codes of RST_STREAM."""
_VERSION = 3
_SYN_STREAM, _SYN_REPLY, _RST_STREAM, _PING, _GOAWAY = 1, 2, 3, 6, 7
_FIN = 1
_WORDS = """
options head post put delete trace accept accept-charset accept-encoding accept-language accept-ranges age allow authorization
cache-control connection content-base content-encoding content-language content-length content-location content-md5 content-range
content-type date etag expect expires from host if-match if-modified-since if-none-match if-range if-unmodified-since last-modified
location max-forwards pragma proxy-authenticate proxy-authorization range referer retry-after server te trailer transfer-encoding
upgrade user-agent vary via warning www-authenticate method get status
"""
_NAMES = (*_WORDS.split(), "200 OK", "version", "HTTP/1.1", "url", "public", "set-cookie", "keep-alive", "origin")
_REST = (
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505"
    "203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden"
    "404 Not Found500 Internal Server Error501 Not Implemented503 Service Unavailable"
    "Jan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMT"
    "chunked,text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/plain,text/javascript,public"
    "privatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0."
)
DICTIONARY = b"".join(struct.pack(">I", len(name)) + name.encode() for name in _NAMES) + _REST.encode()
"""The zlib dictionary for header compression."""


class SpdyError(Exception):
    """A protocol error that ends the connection."""


@dataclass(frozen=True)
class SynStream:
    stream: int
    headers: Mapping[str, str]
    fin: bool = False


@dataclass(frozen=True)
class SynReply:
    stream: int
    headers: Mapping[str, str]
    fin: bool = False


@dataclass(frozen=True)
class Data:
    """Data of a stream. A long frame is delivered in pieces as they arrive; only the last one has `fin`."""

    stream: int
    data: bytes
    fin: bool = False


@dataclass(frozen=True)
class Reset:
    stream: int
    reason: int


@dataclass(frozen=True)
class Ping:
    number: int


@dataclass(frozen=True)
class GoAway:
    last_stream: int
    reason: int = 0


Frame = SynStream | SynReply | Data | Reset | Ping | GoAway


class Reader:
    """Decodes the frames of one direction."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._unpacker = zlib.decompressobj(zdict=DICTIONARY)
        self._data: tuple[int, int, bool] | None = None
        """The data frame being read: stream, remaining bytes, whether it ends the stream."""

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Return the frames completed by `data`. Raises SpdyError."""
        self._buffer += data
        while True:
            if self._data is not None:
                yield self._piece(*self._data)
                if self._data is not None:
                    return
            if len(self._buffer) < 8:
                return
            first, length = struct.unpack_from(">II", self._buffer)
            flags, length = length >> 24, length & 0xFFFFFF
            if not first >> 31:
                del self._buffer[:8]
                self._data = (first, length, bool(flags & _FIN))
                if length and not self._buffer:
                    return
                continue
            if first >> 16 & 0x7FFF != _VERSION:
                raise SpdyError(f"unsupported SPDY version {first >> 16 & 0x7FFF}")
            if length > CONTROL_BYTES:
                raise SpdyError(f"control frame too large: {length} bytes")
            if len(self._buffer) < 8 + length:
                return
            payload = bytes(self._buffer[8 : 8 + length])
            del self._buffer[: 8 + length]
            frame = self._control(first & 0xFFFF, flags, payload)
            if frame is not None:
                yield frame

    def _piece(self, stream: int, left: int, fin: bool) -> Data:
        data = bytes(self._buffer[:left])
        del self._buffer[:left]
        left -= len(data)
        self._data = (stream, left, fin) if left else None
        return Data(stream, data, fin and not left)

    def _control(self, kind: int, flags: int, payload: bytes) -> Frame | None:
        fin = bool(flags & _FIN)
        try:
            if kind == _SYN_STREAM:
                return SynStream(_number(payload), self._headers(payload, 10), fin)
            if kind == _SYN_REPLY:
                return SynReply(_number(payload), self._headers(payload, 4), fin)
            if kind == _RST_STREAM:
                return Reset(_number(payload), _number(payload, 4))
            if kind == _PING:
                return Ping(struct.unpack_from(">I", payload)[0])
            if kind == _GOAWAY:
                return GoAway(_number(payload), _number(payload, 4))
        except (struct.error, zlib.error, UnicodeDecodeError) as error:
            raise SpdyError(f"invalid frame of type {kind}: {error}") from error
        return None

    def _headers(self, payload: bytes, start: int) -> dict[str, str]:
        block = self._unpacker.decompress(payload[start:], CONTROL_BYTES)
        if self._unpacker.unconsumed_tail or self._unpacker.eof:
            raise SpdyError("headers too large, or the compressed stream has ended")
        (count,) = struct.unpack_from(">I", block)
        headers, at = {}, 4
        for _ in range(count):
            name, at = _text(block, at)
            headers[name.lower()], at = _text(block, at)
        return headers


class Writer:
    """Encodes the frames of one direction; header compression requires calls in sending order."""

    def __init__(self) -> None:
        self._packer = zlib.compressobj(zdict=DICTIONARY)

    def bytes_of(self, frame: Frame) -> bytes:
        match frame:
            case Data(stream, data, fin):
                return struct.pack(">II", stream, fin << 24 | len(data)) + data
            case SynStream(stream, headers, fin):
                return _control(_SYN_STREAM, struct.pack(">IIH", stream, 0, 0) + self._packed(headers), fin)
            case SynReply(stream, headers, fin):
                return _control(_SYN_REPLY, struct.pack(">I", stream) + self._packed(headers), fin)
            case Reset(stream, reason):
                return _control(_RST_STREAM, struct.pack(">II", stream, reason))
            case Ping(number):
                return _control(_PING, struct.pack(">I", number))
            case GoAway(last, reason):
                return _control(_GOAWAY, struct.pack(">II", last, reason))

    def _packed(self, headers: Mapping[str, str]) -> bytes:
        block = struct.pack(">I", len(headers))
        for text in (text for pair in headers.items() for text in pair):
            block += struct.pack(">I", len(text.encode())) + text.encode()
        return self._packer.compress(block) + self._packer.flush(zlib.Z_SYNC_FLUSH)


def _control(kind: int, payload: bytes, fin: bool = False) -> bytes:
    return struct.pack(">HHI", 0x8000 | _VERSION, kind, fin << 24 | len(payload)) + payload


def _number(payload: bytes, at: int = 0) -> int:
    """A 31-bit integer."""
    number: int = struct.unpack_from(">I", payload, at)[0] & 0x7FFFFFFF
    return number


def _text(block: bytes, at: int) -> tuple[str, int]:
    (length,) = struct.unpack_from(">I", block, at)
    end = at + 4 + length
    if end > len(block):
        raise SpdyError("header exceeds its frame")
    return block[at + 4 : end].decode("utf-8"), end
