"""Bodies as odd clients send them, and what the server counts about them."""

from __future__ import annotations

import orjson
import pytest

from trainwright.api.errors import BadRequest
from trainwright.controlplane.apiserver.http.metrics import Metrics
from trainwright.controlplane.apiserver.resources.registry import STRATEGIES
from trainwright.controlplane.apiserver.wire.bodies import duplicate_fields
from trainwright.controlplane.apiserver.wire.protobuf import MAGIC, decode_protobuf
from trainwright.controlplane.exposition import exposition


def part(number: int, content: bytes) -> bytes:
    return bytes((number << 3 | 2, len(content))) + content


def message(kind: bytes, content: bytes) -> bytes:
    return MAGIC + part(1, part(1, b"v1") + part(2, kind)) + part(2, content)


def test_protobuf_is_read_like_json() -> None:
    metadata = part(1, b"n") + part(11, part(1, b"l") + part(2, b"v")) + part(8, b"")
    found = decode_protobuf(message(b"Secret", part(1, metadata) + part(2, part(1, b"k") + part(2, b"\xff"))))
    assert found == {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "n", "labels": {"l": "v"}},
        "data": {"k": "/w=="},
    }


def test_every_kind_of_a_typed_client_has_a_message() -> None:
    for kind in (strategy.kind for strategy in STRATEGIES.values() if not strategy.custom and not strategy.read_only):
        head = part(1, kind.api_version.encode()) + part(2, kind.kind.encode())
        found = decode_protobuf(MAGIC + part(1, head) + part(2, part(1, part(1, b"n"))))
        assert found["metadata"] == {"name": "n"}, kind


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"{}", "does not appear to be a protobuf message"),
        (message(b"Strange", b""), "Strange cannot be read from protobuf; send it as application/json"),
        (message(b"ConfigMap", part(9, b"x")), "field 9 of ConfigMap is not understood"),
        (MAGIC + b"\x0a\x7f", "unexpected EOF"),
        (MAGIC + b"\x0d", "illegal wireType 5"),
        (message(b"ConfigMap", b"\x08\x01"), "wrong wireType"),
    ],
)
def test_protobuf_that_cannot_be_read(body: bytes, why: str) -> None:
    with pytest.raises(BadRequest, match=why):
        decode_protobuf(body)


def test_duplicates_are_told_by_their_paths() -> None:
    body = b'{"a":1,"b":[{"c":1,"c":{"d":1,"d":2}}],"a":2,"a":3}'
    assert duplicate_fields(body, orjson.loads(body)) == ["b[0].c", "b[0].c.d", "a"]
    assert duplicate_fields(b'{"a":1}', {"a": 1}) == duplicate_fields(b"{", None) == []


def test_metrics_in_the_form_of_prometheus() -> None:
    metrics = Metrics()
    metrics.observe("GET", "pods", 200, 0.02)
    metrics.observe("GET", "pods", 200, 20.0)
    text = exposition(metrics.families(7, {'a"b': 3}, {}))
    assert 'apiserver_request_total{code="200",resource="pods",verb="GET"} 2.0\n' in text
    assert 'bucket{le="0.025",resource="pods",verb="GET"} 1.0\n' in text
    assert 'bucket{le="10.0",resource="pods",verb="GET"} 1.0\n' in text
    assert 'bucket{le="+Inf",resource="pods",verb="GET"} 2.0\n' in text
    assert "_created" not in text
    assert "apiserver_storage_revision 7.0\n" in text
    assert '# TYPE apiserver_storage_objects gauge\napiserver_storage_objects{resource="a\\"b"} 3.0\n' in text
