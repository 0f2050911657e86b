"""Progress reports against the recorded answers of Trainer's status server, and what is stored after each."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from bound_tokens import pod_of_trainjob, pod_token
from recording_archives import recordings_of

from trainwright.api.kinds import NAMESPACE, TRAINING_RUNTIME, TRAINJOB
from trainwright.api.names import progress_audience
from trainwright.controlplane.apiserver.auth.tokens import Tokens
from trainwright.controlplane.apiserver.endpoints.trainer_status import ProgressReports, Report
from trainwright.controlplane.apiserver.verbs.resource_server import ResourceServer

Manifest = Callable[..., dict[str, Any]]
_PATH = re.compile(r"^/apis/trainer\.kubeflow\.org/v1alpha1/namespaces/([^/]+)/trainjobs/([^/]+)/status$")
_TIME = re.compile(r'"lastUpdatedTime": "[^"]*"')
ON_PURPOSE = {"without lastUpdatedTime", "empty trainerStatus"}
"""A report without a time is stamped on arrival instead of refused."""


@pytest.mark.medium
def test_reports_are_answered_as_recorded(server: ResourceServer, manifest: Manifest, clock: Any) -> None:
    exchanges = yaml.safe_load((recordings_of("status-server") / "exchanges.yaml").read_text("utf-8"))
    tokens = Tokens("a" * 32, b"k" * 32)
    reports = ProgressReports(server, tokens, clock=clock)
    server.create(NAMESPACE, "", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-b"}})
    server.create(TRAINING_RUNTIME, "team-b", manifest(TRAINING_RUNTIME, "rt", "team-b"))
    for name in ("j1", "j2", "j3"):
        server.create(TRAINJOB, "team-b", manifest(TRAINJOB, name, "team-b"))
    wrong: dict[str, Any] = {}
    compared = 0
    for exchange in exchanges:
        request, place = exchange["request"], _PATH.match(exchange["request"]["path"])
        if place is None or request["method"] != "POST" or exchange["about"] in ON_PURPOSE:
            continue
        compared += 1
        status, answer = reports(Report(*place.groups(), _token(server, tokens, exchange, *place.groups()), *_body(request)))
        wanted = (int(exchange["expected"]["status"]), exchange["expected"].get("body"))
        if (status, _as_text(answer)) != (wanted[0], _as_text(wanted[1])):
            wrong[exchange["about"]] = {"expected": wanted, "got": (status, answer)}
        if "thenTrainerStatus" in exchange:
            stored = server.get(TRAINJOB, place[1], place[2]).object.get("status", {}).get("trainerStatus")
            assert _as_text(stored) == _as_text(exchange["thenTrainerStatus"]), exchange["about"]
    assert compared >= 25
    assert not wrong, json.dumps(wrong, indent=1, default=str)[:4000]


def _token(server: ResourceServer, tokens: Tokens, exchange: dict[str, Any], namespace: str, name: str) -> str | None:
    """The token that the exchange names; `other` is what its line `about` says."""
    named = exchange["request"]["token"]
    own, another = progress_audience(namespace, name), progress_audience(namespace, "j2")
    audiences = {"a token for another audience": "other", "a token for another job": another}
    if named == "none":
        return None
    if named == "other":
        audience = audiences.get(exchange["about"], own)
    elif named.startswith("for "):
        audience = progress_audience(namespace, named.removeprefix("for "))
    else:
        return str(named)
    of_job = name if exchange["about"] != "a token for another job" else "j2"
    return pod_token(server, tokens, audience, pod_of_trainjob(server, of_job, namespace))


def _body(request: dict[str, Any]) -> tuple[int, bytes]:
    if "raw" not in request:
        raw = json.dumps(request.get("body")).encode()
    elif filled := re.match(r"^<(\d+) bytes>$", request["raw"]):
        raw = b"x" * int(filled[1])
    else:
        raw = request["raw"].encode()
    return len(raw), raw


def _as_text(answer: Any) -> str:
    return _TIME.sub('"lastUpdatedTime": "TIME"', json.dumps(answer, sort_keys=True))
