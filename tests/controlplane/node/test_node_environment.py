"""What a process of a pod finds in its environment: references resolved as Kubernetes does, the user's login by its path."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.cluster.protocol import Cluster
from trainwright.controlplane.node.environment import VariableResolver, base_environment, expand_references

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
    return base_environment({"metadata": {"uid": "1"}}, "host", tmp_path, tmp_path / "pod-home", threads=1)


@pytest.mark.parametrize(
    "variables", [{}, {"HF_HOME": "hub"}, {"XDG_CACHE_HOME": "cache"}, {"HF_TOKEN_PATH": "login", "AWS_CONFIG_FILE": "aws"}]
)
def test_credentials_that_the_user_has_stored_are_not_found_from_a_pod(
    user: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]
) -> None:
    for name, place in variables.items():
        monkeypatch.setenv(name, str(user / place))
    for stored in (".cache/huggingface/token", "hub/token", "cache/huggingface/token", "login", ".aws/credentials", "aws"):
        (user / stored).parent.mkdir(parents=True, exist_ok=True)
        (user / stored).write_text("secret")
    found = environment(tmp_path)
    assert found["HOME"] == str(tmp_path / "pod-home")
    assert not [name for name in found if name.startswith(("AWS_", "HF_HOME", "HF_TOKEN", "XDG_"))]


def test_a_token_in_the_nodes_own_environment_is_not_passed_on(user: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    assert "HF_TOKEN" not in environment(user)


@pytest.mark.parametrize(
    ("amount", "divisor", "value"),
    [("1500m", "0", "2"), ("1Gi", "1Mi", "1024"), ("1e40", "1n", "1" + "0" * 49), (None, "1", "0")],
)
def test_resources_by_reference(amount: str | None, divisor: str, value: str) -> None:
    source = {"resourceFieldRef": {"resource": "limits.cpu", "divisor": divisor}}
    container = {"env": [{"name": "A", "valueFrom": source}], "resources": {"limits": {"cpu": amount} if amount else {}}}
    resolver = VariableResolver(cast(Cluster, None), {"metadata": {"namespace": "default"}})
    assert resolver.variables(container, {}, str) == {"A": value}
