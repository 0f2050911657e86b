"""The button `Test` of Airflow's form: it says in a sentence whether jobs can be submitted, and never raises or shows a secret."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.cluster_under_test import embedded
from support.on_first_use import OnFirstUse

from trainwright.api.errors import Forbidden, ServiceUnavailable
from trainwright.operators.provider_info import get_provider_info
from trainwright.submission import JobsClient

sdk = OnFirstUse("airflow.sdk")
connections = OnFirstUse("trainwright.operators.values.connections")
hook = OnFirstUse("trainwright.operators.hook")


class Answers:
    """An API server that answers the two requests of the check."""

    host = "https://cluster"

    def __init__(self, review: Any, version: Any = "v1.34.1"):
        self.review, self.version, self.asked = review, version, {}

    def request(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        answer = self.version if path == "/version" else self.review
        if body:
            self.asked = body["spec"]["resourceAttributes"]
        if isinstance(answer, Exception):
            raise answer
        return {"gitVersion": answer} if path == "/version" else {"status": {"allowed": answer}}


def checked(monkeypatch: pytest.MonkeyPatch, base: Any, kind: type[JobsClient] = JobsClient) -> tuple[bool, str]:
    monkeypatch.setattr(hook.TrainwrightHook, "get_conn", lambda _hook: kind(base, default_namespace="team"))
    return hook.TrainwrightHook("c").test_connection()


@pytest.mark.parametrize(
    ("base", "ok", "message"),
    [
        (Answers(False), False, "missing permission: create trainjobs.trainer.kubeflow.org in the namespace team"),
        (Answers(Forbidden("no reviews")), True, "permissions cannot be checked: no reviews"),
        (Answers(True, ServiceUnavailable("down at https://u:secret@h/?sig=secret")), False, "down at https://h/"),
        (Answers(True, RuntimeError("Bearer secret")), False, "***"),
    ],
)
def test_connection_problems_are_reported_without_secrets(
    monkeypatch: pytest.MonkeyPatch, base: Answers, ok: bool, message: str
) -> None:
    found = checked(monkeypatch, base)
    assert found[0] is ok
    assert message in found[1]
    assert "secret" not in found[1]


@pytest.mark.medium
def test_against_an_api_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with embedded(tmp_path, node=False) as kubeconfig:
        extra = json.dumps({"kubeconfig": str(kubeconfig), "namespace": "default"})
        connection = sdk.Connection(conn_id="c", conn_type="trainwright", extra=extra)
        monkeypatch.setattr(hook.TrainwrightHook, "get_connection", lambda *_: connection)
        ok, message = hook.TrainwrightHook(**{hook.TrainwrightHook.conn_name_attr: "c"}).test_connection()
    assert ok, message
    assert message.endswith("; TrainJobs may be created in the namespace default")


def test_the_form_has_a_field_for_each_setting() -> None:
    (entry,) = get_provider_info()["connection-types"]
    fields = set(entry["conn-fields"])
    assert fields == {*connections.ClusterSettings.__dataclass_fields__, "allowed_places"}
    for name in fields:
        assert connections.settings_of("trainwright", {name: ""}, "c") == connections.ClusterSettings()


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("javascript:alert(1)", "expected a URL such as"),
        ("//host/{name}", "expected a URL such as"),
        ("https:///{name}", "expected a URL such as"),
        ("https://host/ {name}", "expected a URL such as"),
        ("https://host/{name", "expected a URL such as"),
        ("https://[host/{name}", "expected a URL"),
        ("https://{name}.example.com/", "its host must be fixed"),
        ("https://u:secret@host/{name}", "no user name and password"),
        ("https://host/{name.__class__}", "the placeholder {name.__class__} is unknown; known: {namespace}, {name}, {uid}"),
    ],
)
def test_a_template_that_is_no_safe_link_is_refused(template: str, message: str) -> None:
    with pytest.raises(ValueError, match=r"^connection 'c': logs_url: ") as refused:
        connections.settings_of("trainwright", {"logs_url": template}, "c")
    assert message in str(refused.value)
    assert "secret" not in str(refused.value)
