"""What connections of each type mean, as environment variables."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.on_first_use import OnFirstUse

credentials = OnFirstUse("trainwright.operators.values.connections")

pytestmark = pytest.mark.medium
KEY = {"type": "service_account", "private_key": "not to be seen"}
AZURE = {"AZURE_STORAGE_ACCOUNT_NAME": "ours", "AZURE_STORAGE_ACCOUNT_KEY": "k=="}


def variables(monkeypatch: pytest.MonkeyPatch, kind: str | None, *, hub: bool = False, **fields: Any) -> dict[str, str]:
    from airflow.sdk import BaseHook

    extra = fields.pop("extra", {})
    told = {"login": "", "password": "", "host": "", **fields}
    connection = SimpleNamespace(conn_type=kind, extra_dejson=extra, **told)
    monkeypatch.setattr(BaseHook, "get_connection", classmethod(lambda _cls, _conn_id: connection))
    return credentials.connection_variables(None if hub else "c", "c" if hub else None)


@pytest.mark.parametrize(
    ("kind", "fields", "expected"),
    [
        (
            "aws",
            {"login": "id", "password": "key", "extra": {"region_name": "eu-1", "verify": True}},
            {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "key", "AWS_REGION": "eu-1"},
        ),
        ("google_cloud_platform", {"extra": {"keyfile_dict": KEY}}, {"GOOGLE_SERVICE_ACCOUNT_KEY": json.dumps(KEY)}),
        (
            "google_cloud_platform",
            {"extra": {"extra__google_cloud_platform__keyfile_dict": json.dumps(KEY)}},
            {"GOOGLE_SERVICE_ACCOUNT_KEY": json.dumps(KEY)},
        ),
        ("google_cloud_platform", {}, {}),
        ("wasb", {"login": "ours", "password": "k=="}, AZURE),
        (
            "wasb",
            {"login": "ours", "extra": {"sas_token": "https://ours.blob.core.windows.net/c?sv=1&sig=x="}},
            {"AZURE_STORAGE_ACCOUNT_NAME": "ours", "AZURE_STORAGE_SAS_TOKEN": "sv=1&sig=x="},
        ),
        ("wasb", {"extra": {"connection_string": "AccountName=ours;AccountKey=k==;EndpointSuffix=core.windows.net"}}, AZURE),
        (
            "wasb",
            {"login": "app", "password": "s", "host": "https://ours.blob.core.windows.net", "extra": {"tenant_id": "t"}},
            {"AZURE_STORAGE_ACCOUNT_NAME": "ours", "AZURE_TENANT_ID": "t", "AZURE_CLIENT_ID": "app", "AZURE_CLIENT_SECRET": "s"},
        ),
        (None, {"extra": {"AZURE_STORAGE_SAS_TOKEN": "sig", "unrelated": "x"}}, {"AZURE_STORAGE_SAS_TOKEN": "sig"}),
    ],
)
def test_each_type_means_what_it_means_to_airflow(
    monkeypatch: pytest.MonkeyPatch, kind: str | None, fields: dict[str, Any], expected: dict[str, str]
) -> None:
    assert variables(monkeypatch, kind, **fields) == expected


def test_a_key_may_be_a_file_of_the_worker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "key.json").write_text(json.dumps(KEY))
    found = variables(monkeypatch, "google_cloud_platform", extra={"key_path": str(tmp_path / "key.json")})
    assert json.loads(found["GOOGLE_SERVICE_ACCOUNT_KEY"]) == KEY


@pytest.mark.parametrize(
    ("kind", "extra", "said"),
    [
        ("ssh", {}, "connection 'c' has the type 'ssh'; a store needs one of aws, google_cloud_platform, wasb, generic"),
        (
            "google_cloud_platform",
            {"keyfile_dict": "{not to be seen"},
            "connection 'c': its extra cannot be used: JSONDecodeError",
        ),
        ("google_cloud_platform", {"key_path": "/none"}, "connection 'c': its extra cannot be used: FileNotFoundError"),
        ("wasb", {"connection_string": "not to be seen"}, "connection 'c': its extra cannot be used: ValueError"),
    ],
)
def test_unusable_connections_are_refused_without_quoting_them(
    monkeypatch: pytest.MonkeyPatch, kind: str, extra: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValueError, match="connection 'c'") as refused:
        variables(monkeypatch, kind, extra=extra)
    assert str(refused.value) == said
