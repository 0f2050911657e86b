"""Decodes protobuf bodies, which kubectl's generators and typed Go clients send, into JSON objects.

The messages are in `messages.json`, which `make schemas` writes from the published numbers of the Kubernetes API (Apache License 2.0).
An unknown field is an error, never silently dropped. Responses are JSON, which those clients accept.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import orjson

from trainwright.api.errors import BadRequest
from trainwright.api.objects import Obj

MAGIC = b"k8s\0"
MESSAGES_FILE = Path(__file__).with_name("messages.json")
"""Name and type of each field of a message by its number. `[T]` is a list, `map<T>` a map with text as keys. After `*` a type is held
by a pointer: zero is a value then, other scalars are omitted if they are zero. A field without a name is part of the message."""
_BY_VERSION = {("events.k8s.io/v1", "Event"): "events/Event"}
"""Messages of kinds whose name is ambiguous without the API version."""
_OMIT_IF_EMPTY = ("status", "strategy")
"""Fields that Go clients always send; omitted if empty."""


class _DecodeError(Exception):
    """The bytes are not a valid message of this kind."""


def decode_protobuf(body: bytes) -> Obj:
    """Decode an object. Raises BadRequest for malformed bytes and unsupported kinds or fields."""
    if not body.startswith(MAGIC):
        raise BadRequest("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")
    try:
        envelope = dict(_fields(body[len(MAGIC) :]))
        kind_of = dict(_fields(_bytes(envelope.get(1, b""))))
        api_version, kind = (_bytes(kind_of.get(number, b"")).decode() for number in (1, 2))
        message = _BY_VERSION.get((api_version, kind), kind)
        if message not in _messages():
            raise BadRequest(f"{kind or 'a body without a kind'} cannot be read from protobuf; send it as application/json")
        return {"apiVersion": api_version, "kind": kind, **_message(message, _bytes(envelope.get(2, b"")))}
    except (_DecodeError, UnicodeDecodeError, orjson.JSONDecodeError) as error:
        raise BadRequest(f"proto: {error}") from None


@cache
def _messages() -> dict[str, dict[int, tuple[str, str]]]:
    read: dict[str, dict[str, tuple[str, str]]] = orjson.loads(MESSAGES_FILE.read_bytes())
    return {name: {int(number): (field, sort) for number, (field, sort) in fields.items()} for name, fields in read.items()}


def _message(name: str, data: bytes) -> Obj:
    known = _messages()[name]
    found: Obj = {}
    for number, raw in _fields(data):
        if number not in known:
            if raw in (b"", 0):
                continue
            raise _DecodeError(f"field {number} of {name} is not understood; send it as application/json")
        field, sort = known[number]
        if sort[0] == "[":
            found.setdefault(field, []).append(_value(sort[1:-1], raw))
        elif sort.startswith("map<"):
            pair = dict(_fields(_bytes(raw)))
            key = _bytes(pair.get(1, b"")).decode()
            found.setdefault(field, {})[key] = _value(sort[4:-1], pair.get(2, b""))
        elif not field:
            found |= _message(sort, _bytes(raw))
        else:
            value = _value(sort.removeprefix("*"), raw)
            if not (value is None or (sort in _SCALARS and not value) or (field in _OMIT_IF_EMPTY and value == {})):
                found[field] = value
    return found


_SCALARS = ("string", "bytes", "int32", "int64", "bool")


def _value(sort: str, raw: bytes | int) -> Any:
    match sort:
        case "string":
            return _bytes(raw).decode()
        case "bytes":
            return base64.b64encode(_bytes(raw)).decode()
        case "int32" | "int64":
            return _number(raw)
        case "bool":
            return bool(_number(raw))
        case "Time" | "MicroTime":
            return _time(_bytes(raw), micro=sort == "MicroTime")
        case "Quantity":
            return _bytes(dict(_fields(_bytes(raw))).get(1, b"")).decode()
        case "IntOrString":
            parts = dict(_fields(_bytes(raw)))
            return _bytes(parts.get(3, b"")).decode() if parts.get(1) else _number(parts.get(2, 0))
        case "ExtraValue":
            return [_bytes(item).decode() for _, item in _fields(_bytes(raw))]
        case "FieldsV1":
            return orjson.loads(_bytes(dict(_fields(_bytes(raw))).get(1, b"null")))
    return _message(sort, _bytes(raw))


def _time(data: bytes, *, micro: bool) -> str | None:
    parts = dict(_fields(data))
    if not parts:
        return None
    try:
        moment = datetime.fromtimestamp(_number(parts.get(1, 0)), UTC)
    except (ValueError, OverflowError, OSError):  # the last two: outside of what the C library's own type can hold
        raise _DecodeError("a time is out of range") from None
    fraction = f".{_number(parts.get(2, 0)) // 1000:06d}" if micro else ""
    return moment.strftime("%Y-%m-%dT%H:%M:%S") + fraction + "Z"


def _bytes(raw: bytes | int) -> bytes:
    if not isinstance(raw, bytes):
        raise _DecodeError("wrong wireType")
    return raw


def _number(raw: bytes | int) -> int:
    if not isinstance(raw, int):
        raise _DecodeError("wrong wireType")
    return raw - (1 << 64) if raw >= 1 << 63 else raw


def _fields(data: bytes) -> Iterator[tuple[int, bytes | int]]:
    """The number and raw value of each field: an integer for varints, bytes for length-delimited fields."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        if tag & 7 == 0:
            value, at = _varint(data, at)
            yield tag >> 3, value
        elif tag & 7 == 2:
            size, at = _varint(data, at)
            if at + size > len(data):
                raise _DecodeError("unexpected EOF")
            yield tag >> 3, data[at : at + size]
            at += size
        else:
            raise _DecodeError(f"illegal wireType {tag & 7}")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 64:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> 64:
                raise _DecodeError("integer overflow")
            return value, at
        shift += 7
    raise _DecodeError("unexpected EOF")
