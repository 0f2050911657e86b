"""Credentials come by reference: literals are refused by field, and no error repeats them."""

from __future__ import annotations

import traceback
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from trainwright.api import admit
from trainwright.jobs import Identity, TrainRequest, trainjob_manifest
from trainwright.jobs.request.secret_detection import LiteralSecret, credential_kind
from trainwright.runtimes import bundled_runtime

LETTERS = "Abcdefghij0123456789"
TOKENS = {
    "hf_" + LETTERS * 2: "a Hugging Face token",
    "AKIA" + "ABCDEFGHIJ012345": "an AWS access key",
    "ghp_" + LETTERS + LETTERS[:16]: "a GitHub token",
    "github_pat_" + LETTERS * 2: "a GitHub token",
    "glpat-" + LETTERS: "a GitLab token",
    "xoxb-" + LETTERS: "a Slack token",
    "sk-proj-" + LETTERS * 2: "an API key",
    f"eyJ{LETTERS}.eyJ{LETTERS}.{LETTERS}": "a JSON web token",
    "-----BEGIN RSA PRIVATE KEY-----": "a private key",
    "postgresql://me:hunter2@db/x": "a URI with a password",
    f"https://a/b?x=1&sig={LETTERS}": "a signed URI",
}


@pytest.mark.parametrize(("token", "what"), TOKENS.items())
def test_a_form_is_known(token: str, what: str) -> None:
    assert credential_kind(token) == credential_kind(f"--option={token}") == what


@pytest.mark.parametrize(
    "text",
    ["", "hf://org/name", "s3://bucket/key", "https://host:8080/path", "hf_transfer", "git@host:a/b", "sk-learn", "eyJ", "1e-4",
     "postgresql://me:$(PASSWORD)@db/x", "http://user@host/", "sha256:" + "ab" * 32],
)  # fmt: skip
def test_what_is_none_passes(text: str) -> None:
    assert credential_kind(text) is None


SECRET = "hf_" + LETTERS * 2


@pytest.mark.parametrize(
    ("fields", "field", "right"),
    [
        ({"env": {"TOKEN": SECRET}}, "env.TOKEN", "secretKeyRef"),
        ({"env": {"WANDB_API_KEY": SECRET[3:]}}, "env.WANDB_API_KEY", "secretKeyRef"),
        ({"dataset_env": {"AWS_SECRET_ACCESS_KEY": SECRET[3:]}}, "dataset_env.AWS_SECRET_ACCESS_KEY", "in dataset_env"),
        ({"args": ["--token", SECRET]}, "args[1]", "$(VARIABLE)"),
        ({"command": ["bash", "-c", f"login {SECRET}"]}, "command[2]", "$(VARIABLE)"),
        ({"dataset_uri": f"https://me:{SECRET}@host/x"}, "dataset_uri", "dataset_secret"),
        ({"model_uri": f"https://host/x?sig={SECRET}"}, "model_uri", "model_secret"),
        ({"annotations": {"note": SECRET}}, "annotations.note", "are public"),
        ({"env": {"TOKEN": SECRET}, "num_nodes": 0, "workspace": SECRET}, "env.TOKEN", "secretKeyRef"),
    ],
)
def test_a_literal_is_refused_by_field_and_never_repeated(fields: Any, field: str, right: str) -> None:
    with pytest.raises(LiteralSecret) as raised:
        TrainRequest(**{"runtime": "trl-sft", **fields})
    assert raised.value.problems[0].field == field
    assert right in raised.value.problems[0].message
    told = "".join(traceback.format_exception(raised.value)).replace(f"SECRET = {SECRET}", "") + str(raised.value.status())
    assert SECRET[3:] not in told


def test_another_error_does_not_repeat_values_either() -> None:
    with pytest.raises(ValidationError) as raised:
        TrainRequest(runtime="trl-sft", env={"PRIVATE": "not to be seen"}, num_nodes=-1)
    assert "not to be seen" not in str(raised.value)


def test_a_reference_reaches_the_program() -> None:
    reference = {"valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}}}
    request = TrainRequest(runtime="trl-sft", env={"HF_TOKEN": reference, "A": "1"}, args=["$(HF_TOKEN)"])
    runtime = bundled_runtime("trl-sft")
    assert runtime is not None
    manifest = trainjob_manifest(request, Identity("o", "r", "s"), "team", runtime)
    admit(manifest)
    assert manifest["spec"]["trainer"]["env"] == [{"name": "A", "value": "1"}, {"name": "HF_TOKEN", **reference}]


@pytest.mark.parametrize(
    "value",
    [{}, {"value": "x"}, {"valueFrom": {}}, {"valueFrom": {"secretKeyRef": {"name": "a"}}}, {"valueFrom": {"secretRef": {}}}],
)
def test_a_reference_that_is_none_is_refused_by_name(value: Any) -> None:
    with pytest.raises(ValidationError, match="TOKEN"):
        TrainRequest(runtime="trl-sft", env={"TOKEN": value})


@given(st.sampled_from(sorted(TOKENS)), st.text(max_size=10), st.text(max_size=10))
def test_a_value_is_found_wherever_it_stands_and_is_not_in_the_message(token: str, before: str, after: str) -> None:
    with pytest.raises(LiteralSecret) as raised:
        TrainRequest(runtime="x", args=[f"{before} {token} {after}"])
    assert token not in str(raised.value)
