"""RegisterModelOperator registers with the token of a connection, once; the token is in no result and no rendered field."""

from __future__ import annotations

import json
import os
from types import SimpleNamespace
from typing import Any

import pytest
from hub_upload_server import TOKEN, HubUploadServer
from support.on_first_use import OnFirstUse
from support.optional_packages import require_packages

from trainwright import operators
from trainwright.checkpoints.exported import open_export

constants = OnFirstUse("huggingface_hub.constants")
errors = OnFirstUse("trainwright.operators.errors")
allowed_places = OnFirstUse("trainwright.operators.values.allowed_places")
require_packages("huggingface_hub", "airflow")

pytestmark = pytest.mark.medium


@pytest.fixture(autouse=True)
def connections(hub: HubUploadServer, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.sdk import BaseHook

    known = {"hub": SimpleNamespace(login="", password=TOKEN, extra_dejson={})}
    monkeypatch.setattr(BaseHook, "get_connection", classmethod(lambda _cls, conn_id: known[conn_id]))
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    for name, value in {"HF_ENDPOINT": hub.url, "HF_HUB_DISABLE_XET": "1"}.items():
        monkeypatch.setenv(name, value)
    for name in ("HF_TOKEN", "ACCESS_TOKEN"):
        monkeypatch.delenv(name, raising=False)


def operator(uri: str, **more: Any) -> operators.RegisterModelOperator:
    arguments = {"checkpoint_uri": uri, "checkpoint_digest": open_export(uri).manifest.digest, "registry": "hf://acme/llama"}
    return operators.RegisterModelOperator(task_id="t", **{**arguments, "hub_conn_id": "hub", **more})


def test_operator_registers_once_with_the_token_of_the_connection(hub: HubUploadServer, export_uri: str) -> None:
    task = operator(export_uri, version="v1", alias="champion", datasets='["acme/chats"]', with_training_state="false")
    first = task.execute({})
    repository = hub.repositories["acme/llama"]
    head = repository.branches["main"]
    assert first == {"uri": f"hf://acme/llama@{head}", "version": head, "existed": False}
    assert repository.tags == {"v1": head, "champion": head}
    assert "- acme/chats\n" in repository.head()["README.md"].decode()
    assert task.execute({}) == {**first, "existed": True}
    assert "HF_TOKEN" not in os.environ
    rendered = {name: getattr(task, name) for name in task.template_fields}
    assert TOKEN not in json.dumps([first, rendered])


def test_another_content_than_that_of_the_digest_is_refused_without_retries(hub: HubUploadServer, export_uri: str) -> None:
    with pytest.raises(errors.NonRetryableError):
        operator(export_uri, checkpoint_digest="sha256:" + "0" * 64).execute({})
    assert "acme/llama" not in hub.repositories


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"registry": "s3://bucket/x"}, "names no registry"),
        ({"datasets": {"a": 1}}, "datasets: expected a list"),
        ({"log_run": "maybe"}, "log_run: expected true or false"),
    ],
)
def test_permanent_errors_fail_without_retries(
    hub: HubUploadServer, export_uri: str, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(errors.NonRetryableError, match=message):
        operator(export_uri, **arguments).execute({})
    assert "acme/llama" not in hub.repositories


def test_the_registry_is_a_place_that_the_list_must_allow(
    hub: HubUploadServer, export_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_VAR_TRAINWRIGHT_ALLOWED_PLACES", "file:///, hf://acme")
    with pytest.raises(allowed_places.PlaceNotAllowed, match="registry: hf://other/llama is not allowed"):
        operator(export_uri, registry="hf://other/llama").execute({})
    operator(export_uri).execute({})
    assert list(hub.repositories) == ["acme/llama"]
