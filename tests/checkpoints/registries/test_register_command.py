"""`trainwright register` prints what was registered, and ends with one line and a code for an error."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from hub_upload_server import TOKEN, HubUploadServer
from support.on_first_use import OnFirstUse
from support.optional_packages import require_packages
from typer.testing import CliRunner

from trainwright.checkpoints.exported import open_export
from trainwright.cli.checkpoint_commands.register import register

constants = OnFirstUse("huggingface_hub.constants")
require_packages("huggingface_hub", extra="hub")
pytestmark = pytest.mark.medium


@pytest.fixture
def app() -> typer.Typer:
    app = typer.Typer(pretty_exceptions_enable=False)
    register(app)
    app.callback()(lambda: None)
    return app


def test_register_prints_the_registration_and_draws_the_loss_curve(
    app: typer.Typer, hub: HubUploadServer, export_uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    for name, value in {"HF_ENDPOINT": hub.url, "HF_TOKEN": TOKEN, "HF_HUB_DISABLE_XET": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("ACCESS_TOKEN", raising=False)
    command = ["register", export_uri, "hf://acme/llama", "--version", "v1", "--alias", "champion"]
    command += ["--dataset", "acme/chats", "--base-model", "acme/base", "--scratch", str(tmp_path / "scratch"), "-o", "json"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    repository = hub.repositories["acme/llama"]
    head = repository.branches["main"]
    assert json.loads(done.stdout) == {
        "registry": "hub",
        "name": "acme/llama",
        "version": head,
        "uri": f"hf://acme/llama@{head}",
        "digest": open_export(export_uri).manifest.digest,
        "existed": False,
    }
    assert repository.tags == {"v1": head, "champion": head}
    assert repository.head()["loss_curve.svg"].startswith(b"<svg")
    card = repository.head()["README.md"].decode()
    for part in ("base_model: acme/base\n", "- acme/chats\n", "![training loss](loss_curve.svg)"):
        assert part in card
    table = CliRunner().invoke(app, command[:-2])
    assert table.exit_code == 0
    assert "existed   True" in table.stdout


@pytest.mark.parametrize(
    ("to", "code", "words"),
    [
        ("s3://bucket/x", 2, "names no registry"),
        ("hf://acme/llama", 1, "set HF_TOKEN"),
        ("mlflow://m --version v1", 1, "MLflow numbers its versions"),
    ],
)
def test_an_error_is_one_line(
    app: typer.Typer, export_uri: str, to: str, code: int, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HF_TOKEN", "ACCESS_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    done = CliRunner().invoke(app, ["register", export_uri, *to.split()])
    assert (done.exit_code, done.stderr.count("\n")) == (code, 1)
    assert words in done.stderr
