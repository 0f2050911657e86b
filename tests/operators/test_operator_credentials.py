"""Credentials from connections: in the environment while a step runs, and nowhere afterwards."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest

from trainwright.operators.values.credentials import credentials

pytestmark = pytest.mark.medium
STORE = SimpleNamespace(
    login="key-id",
    password="not to be seen",
    extra_dejson={"endpoint_url": "https://s3.example.com", "region_name": "eu-1", "verify": True},
)
HUB = SimpleNamespace(login="", password="hub token", extra_dejson={})


@pytest.fixture(autouse=True)
def _connections(monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.sdk import BaseHook

    def get_connection(_cls: Any, conn_id: str) -> Any:
        return {"store": STORE, "hub": HUB}[conn_id]

    monkeypatch.setattr(BaseHook, "get_connection", classmethod(get_connection))
    monkeypatch.setenv("AWS_REGION", "before")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL", "AWS_CA_BUNDLE", "HF_TOKEN"):
        monkeypatch.delenv(name, raising=False)


def test_they_are_there_inside_and_gone_afterwards() -> None:
    with credentials("store", "hub"):
        assert os.environ["AWS_ACCESS_KEY_ID"] == "key-id"
        assert os.environ["AWS_SECRET_ACCESS_KEY"] == "not to be seen"
        assert os.environ["AWS_ENDPOINT_URL"] == "https://s3.example.com"
        assert os.environ["AWS_REGION"] == "eu-1"
        assert os.environ["HF_TOKEN"] == "hub token"
        assert "AWS_CA_BUNDLE" not in os.environ
    assert os.environ["AWS_REGION"] == "before"
    assert not {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL", "HF_TOKEN"} & set(os.environ)


@pytest.mark.parametrize("none", [None, ""])
def test_without_a_connection_the_environment_stays(none: str | None) -> None:
    before = dict(os.environ)
    with credentials(none, none):
        assert dict(os.environ) == before


def test_they_go_after_an_error_too() -> None:
    with pytest.raises(RuntimeError), credentials("store", None):
        raise RuntimeError
    assert "AWS_SECRET_ACCESS_KEY" not in os.environ
