"""Protobuf bodies: published objects with every field, and zeros, which mean something only in some fields."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.shared_folder import shared_folder, shared_path

from trainwright.api.errors import BadRequest
from trainwright.controlplane.apiserver.wire.protobuf import MAGIC, decode_protobuf

OBJECTS = "upstream/protobuf/complete-objects"
NOT_SERVED = {
    "batch.v1.CronJob",
    "core.v1.CreateOptions",
    "core.v1.PersistentVolume",
    "core.v1.Status",
    "storage.k8s.io.v1.StorageClass",
}


@pytest.mark.parametrize("name", sorted({path.stem for path in shared_path(OBJECTS).glob("*.pb")} - NOT_SERVED))
def test_complete_objects_are_read_exactly(name: str) -> None:
    folder = shared_folder(OBJECTS)
    assert decode_protobuf((folder / f"{name}.pb").read_bytes()) == json.loads((folder / f"{name}.json").read_bytes())


@pytest.mark.parametrize("name", sorted(NOT_SERVED))
def test_kinds_that_are_not_served_are_refused(name: str) -> None:
    with pytest.raises(BadRequest, match="cannot be read from protobuf"):
        decode_protobuf((shared_folder(OBJECTS) / f"{name}.pb").read_bytes())


def part(number: int, content: bytes | int) -> bytes:
    return bytes((number << 3, content)) if isinstance(content, int) else bytes((number << 3 | 2, len(content))) + content


@pytest.mark.parametrize(
    ("kind", "spec", "read"),
    [
        ("Deployment", part(1, 0) + part(5, 0) + part(7, 0), {"replicas": 0}),
        ("Job", part(1, 0) + part(7, 0) + part(10, 0), {"parallelism": 0, "backoffLimit": 0, "suspend": False}),
        ("PersistentVolumeClaim", part(3, b"") + part(5, b""), {"storageClassName": ""}),
        ("Service", part(1, part(1, b"") + part(3, 0) + part(5, 0)), {"ports": [{"port": 0}]}),
    ],
)
def test_zeros_are_kept_where_they_are_values(kind: str, spec: bytes, read: Any) -> None:
    body = MAGIC + part(1, part(1, b"v1") + part(2, kind.encode())) + part(2, part(2, spec))
    assert decode_protobuf(body)["spec"] == read


def test_managed_fields_have_to_be_json() -> None:
    body = MAGIC + part(1, part(1, b"v1") + part(2, b"Secret")) + part(2, part(1, part(17, part(7, part(1, b"{")))))
    with pytest.raises(BadRequest, match="proto: "):
        decode_protobuf(body)


@pytest.mark.parametrize("seconds", [1 << 38, 1 << 62, (1 << 64) - (1 << 62)], ids=["a late year", "too large", "too small"])
def test_times_out_of_range_are_refused(seconds: int) -> None:
    with pytest.raises(BadRequest, match="proto: a time is out of range"):
        decode_protobuf(secret_with(part(8, b"\x08" + varint(seconds))))


def test_integers_of_more_than_64_bits_are_refused() -> None:
    with pytest.raises(BadRequest, match="proto: integer overflow"):
        decode_protobuf(secret_with(b"\x38" + varint(1 << 69)))


def secret_with(metadata: bytes) -> bytes:
    return MAGIC + part(1, part(1, b"v1") + part(2, b"Secret")) + part(2, part(1, metadata))


def varint(value: int) -> bytes:
    parts = []
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])
