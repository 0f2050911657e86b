"""The client against a server that is scripted, and against the embedded API server over TLS."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from trainwright.api.errors import (
    AlreadyExists,
    ApiError,
    BadRequest,
    Conflict,
    Expired,
    NotFound,
    ServiceUnavailable,
    TooManyRequests,
    Unauthorized,
)
from trainwright.api.kinds import POD, TRAINJOB
from trainwright.cluster.kubernetes_cluster import KubernetesCluster
from trainwright.cluster.refusals import QuotaExceeded

TOKEN = "s3cr3t-of-the-test"


def event(kind: str, name: str = "a", version: str = "1") -> bytes:
    return json.dumps({"type": kind, "object": {"metadata": {"name": name, "resourceVersion": version}}}).encode() + b"\n"


def test_a_list_reads_every_page_and_keeps_the_first_version(stub: Any, cluster: KubernetesCluster) -> None:
    stub.answer({"metadata": {"resourceVersion": "7", "continue": "next/1=="}, "items": [{"metadata": {"name": "a"}}]})
    stub.answer({"metadata": {"resourceVersion": "7", "continue": "next2"}, "items": None})
    stub.answer({"metadata": {"resourceVersion": "7"}, "items": [{"metadata": {"name": "b"}}]})
    listing = cluster.list(POD, "team", label_selector="a=b,c", field_selector="metadata.name=x")
    assert [(item["kind"], item["apiVersion"], item["metadata"]["name"]) for item in listing.items] == [
        ("Pod", "v1", "a"),
        ("Pod", "v1", "b"),
    ]
    assert listing.resource_version == "7"
    assert [asked.query.get("continue") for asked in stub.asked] == [None, "next/1==", "next2"]
    assert {(asked.path, asked.query["labelSelector"], asked.query["fieldSelector"]) for asked in stub.asked} == {
        ("/api/v1/namespaces/team/pods", "a=b,c", "metadata.name=x")
    }
    assert stub.asked[0].headers["authorization"] == f"Bearer {TOKEN}"


@pytest.mark.parametrize(
    ("code", "reason", "expected"),
    [
        (404, "NotFound", NotFound),
        (404, "", NotFound),
        (409, "AlreadyExists", AlreadyExists),
        (409, "Conflict", Conflict),
        (410, "Gone", Expired),
        (410, "Expired", Expired),
        (401, "Unauthorized", Unauthorized),
        (429, "TooManyRequests", TooManyRequests),
        (503, "", ServiceUnavailable),
        (500, "InternalError", ApiError),
        (418, "", ApiError),
    ],
)
def test_an_error_is_known_by_its_reason_and_else_by_its_code(
    stub: Any, cluster: KubernetesCluster, code: int, reason: str, expected: type[ApiError]
) -> None:
    stub.fail(code, reason, "the words of the server")
    with pytest.raises(expected) as raised:
        cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "team"}})
    assert type(raised.value) is expected
    assert raised.value.code == code
    assert str(raised.value) == "the words of the server"


@pytest.mark.parametrize("verb", ["get", "delete", "patch"])
def test_retry_after_is_told_and_not_slept_through(stub: Any, cluster: KubernetesCluster, verb: str) -> None:
    stub.fail(429, "TooManyRequests", "slow down", headers={"Retry-After": "3600"})
    call: dict[str, Callable[[], Any]] = {
        "get": lambda: cluster.get(POD, "a", "team"),
        "delete": lambda: cluster.delete(POD, "a", "team"),
        "patch": lambda: cluster.patch(POD, "a", {}, "team"),
    }
    with pytest.raises(TooManyRequests) as raised:
        call[verb]()
    assert raised.value.retry_after == 3600
    assert len(stub.asked) == 1


@pytest.mark.parametrize("body", [b"<html>log in first</html>", b"", b"[]", b'"text"'])
def test_a_success_that_is_no_object_is_an_error_of_the_cluster(stub: Any, cluster: KubernetesCluster, body: bytes) -> None:
    stub.answer(body)
    with pytest.raises(ServiceUnavailable, match=r"127\.0\.0\.1.*something other than a Kubernetes object"):
        cluster.get(POD, "a", "team")


def test_get_is_sent_again_over_a_closed_connection_without_a_word_of_urllib3(
    stub: Any, cluster: KubernetesCluster, caplog: pytest.LogCaptureFixture
) -> None:
    stub.hang_up()
    stub.answer({"metadata": {"name": "a"}})
    assert cluster.get(POD, "a", "team") == {"metadata": {"name": "a"}}
    assert [asked.method for asked in stub.asked] == ["GET", "GET"]
    for _ in range(2):
        stub.hang_up()
    with pytest.raises(ServiceUnavailable):
        cluster.get(POD, "a", "team")
    assert not [record for record in caplog.records if record.name.startswith("urllib3") and record.levelname != "DEBUG"]


def test_change_is_not_sent_again_over_a_closed_connection(stub: Any, cluster: KubernetesCluster) -> None:
    stub.hang_up()
    with pytest.raises(ServiceUnavailable):
        cluster.create(CREATED)
    assert len(stub.asked) == 1


@pytest.mark.parametrize("code", [401, 403, 500, 502])
def test_no_error_holds_the_token(stub: Any, cluster: KubernetesCluster, code: int) -> None:
    stub.answer(f"you sent Authorization: Bearer {TOKEN}".encode(), code)
    with pytest.raises(ApiError) as raised:
        cluster.get(POD, "a", "team")
    error: BaseException | None = raised.value
    assert TOKEN not in json.dumps(raised.value.status())
    while error is not None and not error.__suppress_context__:
        assert TOKEN not in str(error) + repr(error)
        error = error.__cause__ or error.__context__
    assert error is None or TOKEN not in str(error) + repr(error)


def test_a_watch_yields_events_and_bookmarks_and_ends_with_its_connection(stub: Any, cluster: KubernetesCluster) -> None:
    added, changed = event("ADDED", version="4"), event("MODIFIED", version="5")
    stub.stream(added[:10], added[10:] + changed[:7], changed[7:] + b"\n" + event("BOOKMARK", version="9"))
    seen = [(e.type, e.resource_version) for e in cluster.watch(TRAINJOB, "team", resource_version="3", timeout_seconds=20)]
    assert seen == [("ADDED", "4"), ("MODIFIED", "5"), ("BOOKMARK", "9")]
    query = stub.asked[0].query
    assert (query["watch"], query["resourceVersion"], query["timeoutSeconds"]) == ("true", "3", "20")
    assert query["allowWatchBookmarks"] == "true"


def test_a_watch_whose_version_is_gone_is_expired_as_an_answer_and_as_an_event(stub: Any, cluster: KubernetesCluster) -> None:
    stub.fail(410, "Expired")
    with pytest.raises(Expired):
        list(cluster.watch(POD, resource_version="1"))
    status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version: 1 (2)"}
    stub.stream(event("ADDED"), json.dumps({"type": "ERROR", "object": status}).encode() + b"\n")
    watch = cluster.watch(POD, resource_version="1")
    assert next(watch).type == "ADDED"
    with pytest.raises(Expired, match="too old"):
        next(watch)


@pytest.mark.parametrize(
    "line", [b"<html>\n", b"3\n", b'{"type": "ADDED"}\n', b'{"object": {}}\n', b'{"type": "ERROR", "object": 3}\n']
)
def test_a_line_that_is_no_event_is_an_error_of_the_cluster(stub: Any, cluster: KubernetesCluster, line: bytes) -> None:
    stub.stream(line)
    with pytest.raises(ServiceUnavailable):
        list(cluster.watch(POD, resource_version="1"))


def test_logs_arrive_as_they_are_written_and_closing_hangs_up(stub: Any, cluster: KubernetesCluster) -> None:
    stub.stream("first ü\n".encode(), end="open")
    logs: Any = cluster.logs("a", "team", container="node", follow=True, tail_lines=0, limit_bytes=9)
    assert next(logs) == "first ü\n".encode()
    logs.close()
    assert stub.hung_up.wait(10)
    assert stub.asked[0].path == "/api/v1/namespaces/team/pods/a/log"
    assert stub.asked[0].query == {"container": "node", "follow": "true", "tailLines": "0", "limitBytes": "9"}


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../pods/a", "a?b", "a#b", "a%2fb", "a b", "a\nb"])
def test_a_name_that_would_be_another_path_is_never_sent(stub: Any, cluster: KubernetesCluster, name: str) -> None:
    """An empty name is the path of the whole collection: `delete` would remove everything."""
    for call in (
        lambda: cluster.delete(TRAINJOB, name, "team"),
        lambda: cluster.get(TRAINJOB, name, "team"),
        lambda: cluster.patch(TRAINJOB, name, {}, "team"),
        lambda: list(cluster.logs(name, "team")),
        lambda: cluster.update({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "team"}}),
    ):
        with pytest.raises(BadRequest, match="is not the name of a"):
            call()
    if name:
        with pytest.raises(BadRequest, match="is not the name of a namespace"):
            cluster.get(TRAINJOB, "a", name)
    assert stub.asked == []


def test_a_log_that_is_shorter_than_was_said_has_broken(stub: Any, cluster: KubernetesCluster) -> None:
    stub.answer(b"line 1\nlin", **{"Content-Length": "100", "Connection": "close"})
    logs = cluster.logs("a", "team")
    assert next(logs) == b"line 1\nlin"
    with pytest.raises(ServiceUnavailable, match=r"connection.* was lost"):
        next(logs)


CREATED = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "team"}}


def test_an_exceeded_quota_is_no_missing_permission(stub: Any, cluster: KubernetesCluster) -> None:
    words = 'configmaps "a" is forbidden: exceeded quota: q, requested: count/configmaps=1, used: count/configmaps=0'
    stub.fail(403, "Forbidden", words)
    with pytest.raises(QuotaExceeded) as raised:
        cluster.create(CREATED)
    assert raised.value.message.startswith(words)
    assert "the ResourceQuota q is used up: delete what counts against it" in raised.value.message
    assert "permission" not in raised.value.message
