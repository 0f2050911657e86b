"""Answers without an end, of zeros, or that drip: a client of any kind of request gives up, soon, and says which server it was."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.api.errors import ApiError, NotFound, ServiceUnavailable
from trainwright.api.kinds import POD
from trainwright.api.objects import name_of
from trainwright.cluster import answers
from trainwright.cluster.answers import AnswerEncoded, AnswerTooLarge, lines_of
from trainwright.cluster.kubernetes_cluster import KubernetesCluster

_POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "team"}}
CALLS: dict[str, Callable[[KubernetesCluster], Any]] = {
    "get": lambda cluster: cluster.get(POD, "a", "team"),
    "list": lambda cluster: cluster.list(POD, "team"),
    "watch": lambda cluster: list(cluster.watch(POD, "team", resource_version="1")),
    "create": lambda cluster: cluster.create(_POD),
    "patch": lambda cluster: cluster.patch(POD, "a", {}, "team"),
    "delete": lambda cluster: cluster.delete(POD, "a", "team"),
    "request": lambda cluster: cluster.request("get", "/apis"),
}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits that are reached in a test."""
    for module in ("answers", "api_connection", "kubernetes_cluster"):
        for name in ("OBJECT_BYTES", "PAGE_BYTES"):
            monkeypatch.setattr(f"trainwright.cluster.{module}.{name}", 1_000_000, raising=False)


def endless(stub: Any, code: int = 200, piece: bytes = b"x" * 65536) -> list[int]:
    """Answer with bytes until the client hangs up; returns a list of how many were sent."""
    sent: list[int] = []

    def write(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(code)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        handler.close_connection = True
        while sum(sent) < 1_000_000_000:
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            sent.append(len(piece))

    stub.answers.put(write)
    return sent


@pytest.mark.parametrize("name", CALLS)
def test_answer_without_end_is_given_up(stub: Any, cluster: KubernetesCluster, name: str) -> None:
    sent = endless(stub)
    with pytest.raises(AnswerTooLarge, match=stub.url) as raised:
        CALLS[name](cluster)
    assert not raised.value.retryable
    assert sum(sent) < 50_000_000  # what the buffers of the connection hold


@pytest.mark.parametrize("name", CALLS)
def test_refusal_without_end_is_the_refusal(stub: Any, cluster: KubernetesCluster, name: str) -> None:
    sent = endless(stub, code=404)
    with pytest.raises(NotFound) as raised:
        CALLS[name](cluster)
    assert len(raised.value.message) < 1000
    assert sum(sent) < 50_000_000


@pytest.mark.medium
@pytest.mark.parametrize("code", [200, 404])
@pytest.mark.parametrize(
    ("name", "encoding"),
    [*((name, "gzip") for name in CALLS), *(("get", encoding) for encoding in ("deflate", "gzip, gzip", "br"))],
)
def test_compressed_answer_is_not_unpacked(stub: Any, cluster: KubernetesCluster, name: str, encoding: str, code: int) -> None:
    stub.answer(gzip.compress(bytes(10_000_000)), code, **{"Content-Encoding": encoding})
    with pytest.raises(AnswerEncoded if code == 200 else NotFound):
        CALLS[name](cluster)


@pytest.mark.parametrize("code", [200, 503])
@pytest.mark.parametrize("name", ["get", "list", "create"])
def test_answer_that_drips_is_given_up(
    stub: Any, cluster: KubernetesCluster, monkeypatch: pytest.MonkeyPatch, name: str, code: int
) -> None:
    """Each byte comes within the time for reading; the clock of the test runs a minute with each."""
    clock = iter(range(0, 1_000_000, 60))
    monkeypatch.setattr(answers, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    sent = endless(stub, code, piece=b" ")
    with pytest.raises(ServiceUnavailable):
        CALLS[name](cluster)
    assert len(sent) < 1_000_000


def test_list_without_a_last_page_is_given_up(stub: Any, cluster: KubernetesCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainwright.cluster.kubernetes_cluster._MAX_OBJECTS", 1500)
    for _ in range(4):
        stub.answer({"metadata": {"continue": "more"}, "items": []})
    with pytest.raises(ServiceUnavailable, match="has more than 1500 pods") as raised:
        cluster.list(POD, "team")
    assert not raised.value.retryable
    assert len(stub.asked) == 3


def test_list_of_large_objects_is_read_one_by_one_in_small_memory(stub: Any, cluster: KubernetesCluster) -> None:
    large, small = {"metadata": {"name": "a", "annotations": {"a": "x" * 3000}}}, {"metadata": {"name": "b"}}
    stub.answer({"metadata": {}, "items": [large, small]})
    stub.answer({"metadata": {"continue": "more", "resourceVersion": "7"}, "items": [large]})
    stub.answer({"metadata": {}, "items": [small]})
    found = cluster.in_small_memory(page=50, page_bytes=2000).list(POD, "team")
    assert [name_of(item) for item in found.items] == ["a", "b"]
    assert [asked.query for asked in stub.asked] == [{"limit": "50"}, {"limit": "1"}, {"limit": "50", "continue": "more"}]


def test_connection_is_used_again_after_whole_answers_alone(stub: Any, cluster: KubernetesCluster) -> None:
    for _ in range(3):
        stub.answer(_POD)
        assert cluster.get(POD, "a", "team") == _POD
    manager = cluster._connection._client.client.rest_client.pool_manager
    pool = manager.connection_from_url(stub.url)
    assert (pool.num_requests, pool.num_connections) == (3, 1)
    endless(stub)
    with pytest.raises(AnswerTooLarge):
        cluster.get(POD, "a", "team")
    stub.answer(_POD)
    assert cluster.get(POD, "a", "team") == _POD
    assert pool.num_connections == 2
    stub.answer(json.dumps(_POD).encode()[:20], **{"Content-Length": "9999"})
    with pytest.raises(ApiError):
        cluster.with_timeout(0.2).get(POD, "a", "team")


@pytest.mark.parametrize("length", ["60000000000000", "9" * 30])
@pytest.mark.parametrize("is_chunked", [False, True])
@pytest.mark.parametrize("name", ["get", "list", "watch"])
def test_length_that_a_server_names_is_not_reserved(
    stub: Any, cluster: KubernetesCluster, name: str, is_chunked: bool, length: str
) -> None:
    def write(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header(*(("Transfer-Encoding", "chunked") if is_chunked else ("Content-Length", length)))
        handler.end_headers()
        handler.wfile.write((length.encode() + b"\r\n" if is_chunked else b"") + b'{"type":')
        handler.close_connection = True

    stub.answers.put(write)
    with pytest.raises(ServiceUnavailable, match="lost"):
        CALLS[name](cluster)


@pytest.mark.parametrize("name", CALLS)
def test_redirect_without_end_is_refused(stub: Any, cluster: KubernetesCluster, name: str) -> None:
    sent: list[int] = []

    def write(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(302)
        handler.send_header("Location", "/elsewhere")
        handler.end_headers()
        handler.close_connection = True
        while sum(sent) < 100_000_000:
            handler.wfile.write(bytes(65536))
            sent.append(65536)

    stub.answers.put(write)
    with pytest.raises(ApiError) as raised:
        CALLS[name](cluster)
    assert (raised.value.code, raised.value.retryable, len(stub.asked)) == (302, False, 1)
    assert sum(sent) < 50_000_000


@pytest.mark.parametrize("page", [{"items": [1]}, {"items": "abc"}, {"items": {"a": 1}}, {"metadata": "x"}, {"metadata": [1]}])
def test_page_that_is_no_list_of_objects_is_refused(stub: Any, cluster: KubernetesCluster, page: dict[str, Any]) -> None:
    stub.answer(page)
    with pytest.raises(ServiceUnavailable, match="other than a list of Kubernetes objects"):
        cluster.list(POD, "team")


@given(st.lists(st.binary(max_size=30)), st.integers(0, 5))
def test_lines_are_those_of_the_whole_stream(pieces: list[bytes], newline: int) -> None:
    made = [piece.replace(bytes([newline]), b"\n") for piece in pieces]
    *lines, _unfinished = b"".join(made).split(b"\n")
    assert list(lines_of(iter(made), "host", 1000)) == [line for line in lines if line]
