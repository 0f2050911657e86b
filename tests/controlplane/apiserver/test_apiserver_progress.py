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
STAMP = {"lastUpdatedTime": "2026-01-02T03:04:05Z"}
BODY = 'TrainJob.trainer.kubeflow.org "j1" is invalid: '


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


def test_each_report_replaces_the_one_before(server: ResourceServer, report: Any) -> None:
    assert report({"trainerStatus": WHOLE}) == (200, {"trainerStatus": WHOLE})
    assert stored(server) == WHOLE
    later = {"progressPercentage": 43, **STAMP}
    assert report({"trainerStatus": later}) == (200, {"trainerStatus": later})
    assert stored(server) == later


def test_the_rest_of_the_status_stays(server: ResourceServer, report: Any) -> None:
    from trainwright.controlplane.apiserver.wire import patch_types
    from trainwright.controlplane.apiserver.wire.write_options import WriteOptions

    server.patch(TRAINJOB, "default", "j1", {"status": {"conditions": []}}, patch_types.MERGE, WriteOptions(status=True))
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


@pytest.mark.parametrize(
    "body",
    [
        b"", b"progress=3", [1],
        {"trainerStatus": {"progressPercentage": "40", **STAMP}},
        {"trainerStatus": {"progressPercentage": 40.5, **STAMP}},
        {"trainerStatus": {"metrics": [{"name": "loss", "value": 0.5}], **STAMP}},
        {"trainerStatus": {"metrics": {}, **STAMP}},
        {"trainerStatus": {"lastUpdatedTime": "yesterday"}},
        {"trainerStatus": []},
    ],
)  # fmt: skip
def test_malformed_reports_are_invalid_payloads(report: Any, body: Any) -> None:
    code, answer = report(body)
    assert (code, answer["message"], answer["reason"]) == (422, "Invalid payload", "Invalid")


@pytest.mark.parametrize(
    ("status", "message"),
    [
        ({"progressPercentage": 101}, "status.trainerStatus.progressPercentage: Invalid value: 101: "
         "trainerStatus.progressPercentage in body should be less than or equal to 100"),
        ({"progressPercentage": -1}, "status.trainerStatus.progressPercentage: Invalid value: -1: "
         "trainerStatus.progressPercentage in body should be greater than or equal to 0"),
        ({"estimatedRemainingSeconds": -5}, "status.trainerStatus.estimatedRemainingSeconds: Invalid value: -5: "
         "trainerStatus.estimatedRemainingSeconds in body should be greater than or equal to 0"),
        ({"metrics": [{"value": "0.5"}]}, 'status.trainerStatus.metrics[0].name: Invalid value: "": '
         "trainerStatus.metrics[0].name in body should be at least 1 chars long"),
    ],
)  # fmt: skip
def test_values_out_of_bounds(server: ResourceServer, report: Any, status: Any, message: str) -> None:
    code, answer = report({"trainerStatus": {**status, **STAMP}})
    assert (code, answer["message"]) == (422, BODY + message)
    assert stored(server) is None


def test_too_many_metrics(report: Any) -> None:
    metrics = [{"name": f"m{number}", "value": "1"} for number in range(300)]
    code, answer = report({"trainerStatus": {"metrics": metrics, **STAMP}})
    assert code == 422
    assert answer["message"].startswith(
        BODY + "[status.trainerStatus.metrics: Too many: 300: must have at most 256 items, <nil>: Invalid"
    )


def test_unknown_fields_and_repeated_names_are_fine(server: ResourceServer, report: Any) -> None:
    metrics = [{"name": "loss", "value": "1"}, {"name": "loss", "value": "2"}]
    code, answer = report({"trainerStatus": {"speed": 3, "metrics": metrics, **STAMP}})
    assert (code, answer["trainerStatus"]) == (200, {"metrics": metrics, **STAMP})


def test_sizes_and_absent_jobs(report: Any) -> None:
    assert report(b"", size=70_000) == (
        413,
        {"metadata": {}, "status": "Failure", "message": "Payload too large", "reason": "RequestEntityTooLarge", "code": 413},
    )
    code, answer = report({"trainerStatus": WHOLE}, name="nope")
    assert (code, answer["message"], answer["reason"]) == (404, "Train job not found", "NotFound")


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
