"""Links to trackers: only http and https, without credentials, and commands that a shell takes as they are meant."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from factories import trainjob
from hypothesis import given
from hypothesis import strategies as st

from trainwright.ui.models.run_page import links_in, links_of, safe_url


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("https://mlflow.example.com/base", "https://mlflow.example.com/base"),
        ("http://user:secret@host:5000/x?token=1#y", "http://host:5000/x"),
        ("http://[::1]:5000", "http://[::1]:5000"),
        ("javascript:alert(1)", ""),
        ("JAVASCRIPT://host/%0aalert(1)", ""),
        ("data:text/html,x", ""),
        ("sqlite:///a/mlflow.db", ""),
        ("//host/x", ""),
        ("http://", ""),
        ("http://host:99999999/", ""),
        ("http://host/\njavascript:alert(1)", ""),
        ("https://host/\u202egnp.exe", ""),
        ("http://host\\@other/", ""),
        ("https://host/" + "x" * 5_000, ""),
    ],
)
def test_only_plain_http_addresses_are_links(text: str, url: str) -> None:
    assert safe_url(text) == url


@given(st.text(max_size=60))
def test_any_text_gives_a_web_address_or_none(text: str) -> None:
    found = safe_url(text) or safe_url(f"http://{text}")
    assert found == "" or (found.startswith(("http://", "https://")) and "@" not in found.partition("://")[2].partition("/")[0])


def test_wandb_is_linked_by_entity_and_project() -> None:
    env = [
        {"name": "WANDB_ENTITY", "value": "a/../b"},
        {"name": "WANDB_PROJECT", "value": "p"},
        {"name": "WANDB_RUN_ID", "value": "r"},
    ]
    (link,) = links_of(trainjob(trainer={"env": [*env, {"name": "WANDB_API_KEY", "value": "secret"}]}))
    assert link["url"] == "https://wandb.ai/a%2F..%2Fb/p/runs/r"
    assert "secret" not in str(link)


def test_local_trackers_get_commands(tmp_path: Path) -> None:
    folder = tmp_path / "a run; rm -rf ~"
    (folder / "output" / "runs").mkdir(parents=True)
    (folder / "output" / "runs" / "events.out.tfevents.1").write_bytes(b"")
    (folder / "mlflow.db").write_bytes(b"")
    (folder / "tensorboard").symlink_to("/etc")
    found = links_in(folder)
    assert [link["tool"] for link in found] == ["TensorBoard", "MLflow"]
    assert shlex.split(found[0]["command"]) == ["tensorboard", "--logdir", str(folder / "output")]
    assert shlex.split(found[1]["command"])[-1] == f"sqlite:///{folder / 'mlflow.db'}"


def test_a_run_without_trackers_has_no_links(tmp_path: Path) -> None:
    assert links_in(tmp_path) == []
    assert links_of(trainjob()) == []
