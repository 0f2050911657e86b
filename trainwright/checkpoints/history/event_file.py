"""Reads the scalars in TensorBoard's event files, which most frameworks can write. Pure, standard library only.

A file is a series of records: length, checksum of the length, data, checksum of the data (TFRecord). The data is the protobuf
message `Event` (tensorflow/core/util/event.proto). A training that was killed leaves half a record at the end.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

_LENGTH, _CHECKSUM = struct.Struct("<Q"), struct.Struct("<I")
_HEADER = _LENGTH.size + _CHECKSUM.size
_MAX_SCALARS = 64 * 1024
"""Records with more bytes hold images, graphs and the like: they are passed over unread."""
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_WIRE_SIZES = {_FIXED64: 8, _FIXED32: 4}
_DT_FLOAT, _DT_DOUBLE = 1, 2


class BadEventFile(ValueError):
    """A record or message is corrupt; the message says where."""


@dataclass(frozen=True)
class Scalar:
    """`wall_time` is in seconds since 1970."""

    tag: str
    step: int
    wall_time: float
    value: float


def scalars_in(content: bytes) -> Iterator[Scalar]:
    """Yield the scalars of an event file in the order in which they were written. A record that is cut off ends it.

    Raises BadEventFile at the first record that is corrupt.
    """
    for data in _records(content):
        try:
            yield from _scalars(data)
        except (IndexError, struct.error, UnicodeDecodeError, OverflowError) as error:
            raise BadEventFile(f"an event is no valid message: {error}") from error


def _records(content: bytes) -> Iterator[bytes]:
    at, end = 0, len(content)
    while at + _HEADER <= end:
        (length,) = _LENGTH.unpack_from(content, at)
        (checksum,) = _CHECKSUM.unpack_from(content, at + _LENGTH.size)
        if _masked(content[at : at + _LENGTH.size]) != checksum:
            raise BadEventFile(f"the record at byte {at} has a wrong length")
        start = at + _HEADER
        at = start + length + _CHECKSUM.size
        if at > end:
            return
        if length > _MAX_SCALARS:
            continue
        data = content[start : start + length]
        if _masked(data) != _CHECKSUM.unpack_from(content, start + length)[0]:
            raise BadEventFile(f"the record at byte {start - _HEADER} has a wrong checksum")
        yield data


def _scalars(event: bytes) -> Iterator[Scalar]:
    wall_time, step, summaries = 0.0, 0, []
    for number, wire, value in _fields(event):
        if (number, wire) == (1, _FIXED64):
            (wall_time,) = struct.unpack("<d", value)
        elif (number, wire) == (2, _VARINT):
            step = int.from_bytes(value, "little")
            step -= (step >> 63) << 64  # int64
        elif (number, wire) == (5, _BYTES):
            summaries.append(value)
    for summary in summaries:
        for number, wire, value in _fields(summary):
            if (number, wire) == (1, _BYTES) and (found := _tagged(value)) is not None:
                yield Scalar(found[0], step, wall_time, found[1])


def _tagged(summary_value: bytes) -> tuple[str, float] | None:
    """Return tag and number of a `Summary.Value`; None for images and other plugins, and tensors that are not one number."""
    tag, simple, tensor, plugin = "", None, None, "scalars"
    for number, wire, value in _fields(summary_value):
        if (number, wire) == (1, _BYTES):
            tag = value.decode()
        elif (number, wire) == (2, _FIXED32):
            (simple,) = struct.unpack("<f", value)
        elif (number, wire) == (8, _BYTES):
            tensor = value
        elif (number, wire) == (9, _BYTES):
            plugin = _plugin(value)
    found = simple if simple is not None else None if tensor is None else _number(tensor)
    return None if found is None or not tag or plugin not in ("scalars", "") else (tag, found)


def _plugin(metadata: bytes) -> str:
    data = next((value for number, wire, value in _fields(metadata) if (number, wire) == (1, _BYTES)), b"")
    return next((value.decode() for number, wire, value in _fields(data) if (number, wire) == (1, _BYTES)), "")


def _number(tensor: bytes) -> float | None:
    """Return the number in a `TensorProto` without dimensions of type float or double."""
    kind, content, values = 0, b"", b""
    for number, wire, value in _fields(tensor):
        if (number, wire) == (1, _VARINT):
            kind = int.from_bytes(value, "little")
        elif (number, wire) == (2, _BYTES) and any(inner == 2 for inner, _, _ in _fields(value)):
            return None
        elif (number, wire) == (4, _BYTES):
            content = value
        elif number in (5, 6):  # packed, or the only one
            values = value
    form = {_DT_FLOAT: "<f", _DT_DOUBLE: "<d"}.get(kind)
    packed = content or values
    if form is None or len(packed) != struct.calcsize(form):
        return None
    return float(struct.unpack(form, packed)[0])


def _fields(message: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yield number, wire type and bytes of the fields of a message; a varint as the eight bytes of its value."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        wire = key & 7
        if wire == _VARINT:
            value, at = _varint(message, at)
            yield key >> 3, wire, (value & (1 << 64) - 1).to_bytes(8, "little")
            continue
        if wire == _BYTES:
            size, at = _varint(message, at)
        elif wire in _WIRE_SIZES:
            size = _WIRE_SIZES[wire]
        else:
            raise BadEventFile(f"a field has the unknown wire type {wire}")
        if at + size > len(message):
            raise BadEventFile("a field is longer than its message")
        yield key >> 3, wire, message[at : at + size]
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return value, at
    raise BadEventFile("a number has more than ten bytes")


def _masked(data: bytes) -> int:
    """Return the checksum of a TFRecord: CRC-32C, rotated and moved, so that it may be part of data with a checksum."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _table_entry(byte: int) -> int:
    for _ in range(8):
        byte = (byte >> 1) ^ (0x82F63B78 if byte & 1 else 0)
    return byte


_TABLE = [_table_entry(byte) for byte in range(256)]
