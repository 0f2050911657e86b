"""Progress reports: the answers of the Trainer's status server, case by case, and what is stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
import pytest
from bound_tokens import account_token, pod_of_trainjob, pod_token

from trainwright.api.kinds import NAMESPACE, POD, TRAINJOB
from trainwright.api.names import progress_audience
from trainwright.controlplane.apiserver.auth.tokens import Tokens
from trainwright.controlplane.apiserver.endpoints.trainer_status import ProgressReports, Report
from trainwright.controlplane.apiserver.verbs.resource_server import ResourceServer

Manifest = Callable[..., dict[str, Any]]
WHOLE = {
    "progressPercentage": 42,
    "estimatedRemainingSeconds": 120,
    "metrics": [{"name": "loss", "value": "0.5"}, {"name": "accuracy", "value": "0.9"}],
    "lastUpdatedTime": "2026-01-02T03:04:05Z",
}


@pytest.fixture
def tokens() -> Tokens:
    return Tokens("a" * 32, b"k" * 32)


@pytest.fixture
def report(server: ResourceServer, clock: Any, tokens: Tokens, manifest: Manifest) -> Any:
    reports = ProgressReports(server, tokens, clock=clock)
    server.create(TRAINJOB, "default", manifest(TRAINJOB, "j1"))

    def send(body: Any, name: str = "j1", token: str | None = "", size: int | None = None) -> tuple[int, Any]:
        raw = body if isinstance(body, bytes) else orjson.dumps(body)
        issued = pod_token(server, tokens, progress_audience("default", name), pod_of_trainjob(server, name))
        return reports(Report("default", name, issued if token == "" else token, len(raw) if size is None else size, raw))

    return send


def stored(server: ResourceServer) -> Any:
    return server.get(TRAINJOB, "default", "j1").object.get("status", {}).get("trainerStatus")


def test_the_rest_of_the_status_stays(server: ResourceServer, report: Any) -> None:
    from trainwright.controlplane.apiserver.wire import media
    from trainwright.controlplane.apiserver.wire.requests import WriteOptions

    server.patch(TRAINJOB, "default", "j1", {"status": {"conditions": []}}, media.MERGE, WriteOptions(status=True))
    report({"trainerStatus": WHOLE})
    assert server.get(TRAINJOB, "default", "j1").object["status"] == {"conditions": [], "trainerStatus": WHOLE}


def test_a_report_without_a_time_is_stamped(server: ResourceServer, report: Any, clock: Any) -> None:
    clock.advance(60)
    code, answer = report({"trainerStatus": {"progressPercentage": 44}})
    assert (code, answer["trainerStatus"]["lastUpdatedTime"]) == (200, "2026-01-02T03:05:05Z")
    assert stored(server) == answer["trainerStatus"]


@pytest.mark.parametrize("body", [{}, {"trainerStatus": None}, {"other": 1}])
def test_a_report_of_nothing_changes_nothing(server: ResourceServer, report: Any, body: Any) -> None:
    assert report(body) == (200, {})
    assert stored(server) is None


def test_only_a_pod_of_this_job_with_a_token_for_it_may_report(
    server: ResourceServer, report: Any, tokens: Tokens, manifest: Manifest
) -> None:
    audience, own = progress_audience("default", "j1"), pod_of_trainjob(server, "j1")
    server.create(NAMESPACE, "", manifest(NAMESPACE, "elsewhere"))
    server.create(TRAINJOB, "default", manifest(TRAINJOB, "j2"))
    other, alone = pod_of_trainjob(server, "j2"), server.create(POD, "default", manifest(POD, "alone")).object
    refused = [
        None,
        "abc",
        "a" * 32,
        pod_token(server, tokens, progress_audience("default", "j2"), own),
        pod_token(server, tokens, "other", own),
        pod_token(server, tokens, audience, other),
        pod_token(server, tokens, audience, alone),
        pod_token(server, tokens, audience, own, seconds=-600),
        pod_token(server, Tokens("a" * 32, b"z" * 32), audience, own),
        account_token(server, tokens, audience),
        account_token(server, tokens, audience, namespace="elsewhere"),
        account_token(server, tokens, audience, pod={"name": "j1-0", "uid": "another"}),
    ]
    assert report({"trainerStatus": WHOLE}, token=pod_token(server, tokens, audience, own))[0] == 200
    for token in refused:
        code, answer = report({"trainerStatus": WHOLE}, token=token)
        assert (code, answer["message"], answer["reason"]) == (403, "Forbidden", "Forbidden")


@pytest.mark.medium
def test_over_http(peer: Any, manifest: Manifest) -> None:
    peer.server.create(TRAINJOB, "default", manifest(TRAINJOB, "j1"))
    path = TRAINJOB.path("default", "j1") + "/status"
    token = pod_token(peer.server, peer.tokens, progress_audience("default", "j1"), pod_of_trainjob(peer.server, "j1"))
    answer = peer.json("POST", path, {"trainerStatus": WHOLE}, token=token)
    assert (answer.status, answer.body) == (200, {"trainerStatus": WHOLE})
    assert stored(peer.server) == WHOLE
    assert peer.json("POST", path, {"trainerStatus": WHOLE}, token=token, Authorization=f"bearer   {token}").status == 200
    assert peer.json("POST", path, {"trainerStatus": WHOLE}, token=None).status == 403
    assert peer.json("POST", path, b"x" * 70_000, token=token).status == 413
    assert peer.json("POST", path, {"trainerStatus": WHOLE}).status == 405  # the administrator has the status subresource
    # The token is for nothing else.
    assert peer.json("GET", TRAINJOB.path("default", "j1"), token=token).status == 401
    assert peer.json("GET", path, token=token).status == 401
