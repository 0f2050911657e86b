"""What a process of a pod finds in its environment: references resolved as Kubernetes does, the user's login by its path."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.controlplane.node.environment import base_environment, expand_references

VARIABLES = {"A": "1", "B": "2", "a-b.c": "3", "": "nothing", "X Y": "4", "A$(B": "5", "LOOP": "$(A)"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", ""),
        ("$(A)", "1"),
        ("x$(A)y$(B)", "x1y2"),
        ("$(a-b.c)", "3"),
        ("$(X Y)", "4"),
        ("$()", "nothing"),
        ("$(A$(B))", "5)"),
        ("$(LOOP)", "$(A)"),
        ("$(UNKNOWN)", "$(UNKNOWN)"),
        ("$(1 + 2)", "$(1 + 2)"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$$$$(A)", "$$(A)"),
        ("$$", "$"),
        ("$$A", "$A"),
        ("kill $$; echo $?", "kill $; echo $?"),
        ("$A", "$A"),
        ("$", "$"),
        ("A$", "A$"),
        ("$(A", "$(A"),
        ("$(A $$(B)", "$(A $$(B)"),
        ("$(A $$", "$(A $"),
        ("($(A))", "(1)"),
        ("$\u00e9$(A)", "$\u00e91"),
        ("$(A\n)", "$(A\n)"),
    ],
)
def test_references_to_variables(text: str, value: str) -> None:
    assert expand_references(text, VARIABLES) == value


def step_by_step(text: str, variables: dict[str, str]) -> str:
    """The loop of Kubernetes' expansion.Expand, with characters for bytes."""
    out, cursor = "", 0
    while cursor < len(text):
        if text[cursor] != "$" or cursor + 1 == len(text):
            out, cursor = out + text[cursor], cursor + 1
        elif text[cursor + 1] == "$":
            out, cursor = out + "$", cursor + 2
        elif text[cursor + 1] == "(" and ")" in text[cursor + 2 :]:
            end = text.index(")", cursor + 2)
            name = text[cursor + 2 : end]
            out, cursor = out + variables.get(name, f"$({name})"), end + 1
        else:
            out, cursor = out + text[cursor : cursor + 2], cursor + 2
    return out


@given(st.text(alphabet=st.sampled_from("$()AB \n"), max_size=14))
def test_property_expansion_is_that_of_kubernetes(text: str) -> None:
    assert expand_references(text, VARIABLES) == step_by_step(text, VARIABLES)


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's home without any setting of Hugging Face."""
    for name in ("HF_HOME", "HF_TOKEN_PATH", "XDG_CACHE_HOME", "HF_TOKEN", "AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def environment(tmp_path: Path) -> dict[str, str]:
    return base_environment({"metadata": {"uid": "1"}}, "host", tmp_path, threads=1)


@pytest.mark.parametrize(
    ("file", "variables"),
    [
        (".cache/huggingface/token", {}),
        ("hub/token", {"HF_HOME": "hub"}),
        ("cache/huggingface/token", {"XDG_CACHE_HOME": "cache"}),
        ("login", {"HF_TOKEN_PATH": "login", "HF_HOME": "hub"}),
    ],
)
def test_the_login_to_the_hub_is_passed_on_as_a_path(
    user: Path, monkeypatch: pytest.MonkeyPatch, file: str, variables: dict[str, str]
) -> None:
    for name, folder in variables.items():
        monkeypatch.setenv(name, str(user / folder))
    assert "HF_TOKEN_PATH" not in environment(user)
    (user / file).parent.mkdir(parents=True, exist_ok=True)
    (user / file).write_text("hf_secret")
    found = environment(user)
    assert found["HF_TOKEN_PATH"] == str(user / file)
    assert found.get("HF_HOME") == (str(user / "hub") if "HF_HOME" in variables else None)
    assert "hf_secret" not in "".join(found.values())


def test_a_profile_for_s3_is_passed_on_as_a_path(user: Path) -> None:
    assert not [name for name in environment(user) if name.startswith("AWS_")]
    (user / ".aws").mkdir()
    (user / ".aws" / "credentials").write_text("[default]")
    assert environment(user)["AWS_SHARED_CREDENTIALS_FILE"] == str(user / ".aws" / "credentials")


def test_a_token_in_the_nodes_own_environment_is_not_passed_on(user: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    assert "HF_TOKEN" not in environment(user)
