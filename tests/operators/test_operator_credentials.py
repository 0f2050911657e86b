"""Credentials from connections: in the environment while a step runs, and nowhere afterwards."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest
from factories import task_context
from servers.s3_server import BUCKET, S3Server
from support.on_first_use import OnFirstUse

from trainwright import operators
from trainwright.api import names
from trainwright.api.kinds import TRAINJOB
from trainwright.checkpoints.manifest import MANIFEST, OWNER, Manifest, ManifestFile
from trainwright.checkpoints.pointers import update_latest
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.jobs import Identity
from trainwright.storage.open import open_store

credentials = OnFirstUse("trainwright.operators.values.connections")

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


def test_credentials_are_set_inside_and_removed_afterwards() -> None:
    with credentials.credentials("store", "hub"):
        assert os.environ["AWS_ACCESS_KEY_ID"] == "key-id"
        assert os.environ["AWS_SECRET_ACCESS_KEY"] == "not to be seen"
        assert os.environ["AWS_ENDPOINT_URL"] == "https://s3.example.com"
        assert os.environ["AWS_REGION"] == "eu-1"
        assert os.environ["HF_TOKEN"] == "hub token"
        assert "AWS_CA_BUNDLE" not in os.environ
    assert os.environ["AWS_REGION"] == "before"
    assert not {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL", "HF_TOKEN"} & set(os.environ)


def test_credentials_are_removed_after_an_error() -> None:
    with pytest.raises(RuntimeError), credentials.credentials("store", None):
        raise RuntimeError
    assert "AWS_SECRET_ACCESS_KEY" not in os.environ


def test_latest_export_is_looked_up_with_the_store_connection(
    connected: EmbeddedCluster, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, run = f"s3://{BUCKET}/{os.urandom(6).hex()}", "again"
    with monkeypatch.context() as environment:
        for name, value in s3_server.environment.items():
            environment.setenv(name, value)
        uri = _export(f"{root}/{Identity('airflow/d', run, 'train').exports}", run)
    for name in s3_server.environment:
        monkeypatch.delenv(name, raising=False)
    access = {"endpoint_url": s3_server.endpoint, "region_name": "us-east-1"}
    monkeypatch.setattr(STORE, "login", s3_server.access_key_id)
    monkeypatch.setattr(STORE, "password", s3_server.secret_access_key)
    monkeypatch.setattr(STORE, "extra_dejson", access)
    task = operators.TrainJobOperator(
        task_id="train", workspace="pvc://w", run_id=run, export_uri=root, store_conn_id="store", wait_for_completion=False
    )
    task.execute(task_context(retries=2))
    (job,) = connected.list(TRAINJOB).items
    assert {"name": names.RESUME_EXPORT_VARIABLE, "value": uri} in _variables(job["spec"]["runtimePatches"])
    assert "AWS_SECRET_ACCESS_KEY" not in os.environ


def _export(folder: str, run: str) -> str:
    """Publish an export that is little more than a manifest, as the run's latest; returns its URI."""
    store, name = open_store(folder), "checkpoint-5"
    files = (ManifestFile(path="model.safetensors", size=0, sha256="e" * 64, key="attempt/model.safetensors"),)
    manifest = Manifest(
        format="model",
        step=5,
        source=f"{run}/job",
        created="2026-01-01T00:00:00Z",
        confirmed="checked",
        files=files,
        metadata={OWNER: "airflow/d"},
    )
    store.below(name).create(MANIFEST, manifest.text())
    update_latest(store, name, manifest)
    return f"{folder}/{name}"


def _variables(found: Any) -> list[Any]:
    """All environment variables anywhere in an object."""
    if isinstance(found, list):
        return [each for entry in found for each in _variables(entry)]
    if not isinstance(found, dict):
        return []
    return [*found.get("env", ()), *(each for entry in found.values() for each in _variables(entry))]
