"""TensorBoard's event files, made by hand: records as TFRecord frames them, with checksums of another implementation."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path


def crc32c(data: bytes) -> int:
    """Compute CRC-32C bit by bit."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data: bytes) -> bytes:
    crc = crc32c(data)
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF)


def record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + masked(length) + data + masked(data)


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def event(tag: str, step: int, value: float, wall_time: float = 0.0, *, as_tensor: bool = False) -> bytes:
    if as_tensor:  # a DT_FLOAT without dimensions, in tensor_content
        number = field(8, b"\x08\x01" + field(2, b"") + field(4, struct.pack("<f", value))) + field(
            9, field(1, field(1, b"scalars"))
        )
    else:
        number = b"\x15" + struct.pack("<f", value)
    summary = field(1, field(1, tag.encode()) + number)
    return b"\x09" + struct.pack("<d", wall_time) + b"\x10" + varint(step) + field(5, summary)


def write_events(folder: Path, name: str, points: Iterable[tuple[str, int, float, float]]) -> Path:
    """Write tag, step, value and wall time of each point to `folder/events.out.tfevents.NAME`."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"events.out.tfevents.{name}"
    path.write_bytes(b"".join(record(event(*point)) for point in points))
    return path
