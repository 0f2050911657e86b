"""Credentials come by reference: literals are refused by field, and no error repeats them."""

from __future__ import annotations

import time
import traceback
from contextlib import nullcontext
from types import MappingProxyType
from typing import Any

import pytest
from factories import train_request
from hypothesis import given
from hypothesis import strategies as st

from trainwright.api.admission.admit import admit
from trainwright.jobs import Identity, trainjob_manifest
from trainwright.jobs.credentials.credential_patterns import masked
from trainwright.jobs.credentials.secret_detection import (
    LiteralSecret,
    credential_kind,
    literal_problems,
    manifest_problems,
    reject_known_literals,
)
from trainwright.jobs.request.invalid_settings import InvalidSettings
from trainwright.jobs.submit.resolve import resolve
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
    f"sv=2022-11-02&ss=b&sig={LETTERS}": "a signed URI",
    "postgres://u:p@h": "a URI with a password",
    f"AccountName=a;AccountKey={LETTERS}==;": "a connection string with a key",
    f"Endpoint=sb://a/;SharedAccessKey={LETTERS}": "a connection string with a key",
    "Server=db;User=me;Password=hunter2": "a connection string with a password",
    "host=db user=me password=hunter2": "a connection string with a password",
    f"Authorization: Bearer {LETTERS}": "a bearer token",
    "Authorization: Basic bWU6aHVudGVyMg==": "a password in a header",
    f"sk-ant-api03-{LETTERS}": "an API key",
}


@pytest.mark.parametrize(("token", "what"), TOKENS.items())
def test_a_form_is_known(token: str, what: str) -> None:
    assert credential_kind(token) == credential_kind(f"--option={token}") == what


@pytest.mark.parametrize(
    "text",
    ["", "hf://org/name", "s3://bucket/key", "https://host:8080/path", "hf_transfer", "git@host:a/b", "sk-learn", "eyJ", "1e-4",
     "postgresql://me:$(PASSWORD)@db/x", "http://user@host/", "sha256:" + "ab" * 32,
     "Authorization: Bearer $(TOKEN)", "Bearer authentication-is-required", "host=db user=me password=$(PW)", "x;pwd=$PWD",
     "connect(password=os.environ['PW'])", "a?sig=$(SIGNATURE_OF_THE_DAY)", "basic-training", "--lr=1e-4 --max_tokens=512"],
)  # fmt: skip
def test_harmless_texts_have_no_credential_kind(text: str) -> None:
    assert credential_kind(text) is None


NAMES = [
    "PASSWORD", "PGPASSWORD", "DB_PASS", "DB_PASSWORD", "SMTP_PASS", "MYSQL_PWD", "SSH_PASSPHRASE", "APIKEY",
    "WANDB_API_KEY", "OPENAI_APIKEY", "HF_TOKEN", "hf_token", "HUGGING_FACE_HUB_TOKEN", "HUGGINGFACE_TOKEN", "SAS_TOKEN",
    "AWS_SESSION_TOKEN", "AWS_SECRET_ACCESS_KEY", "MINIO_SECRET_KEY", "CLIENT_SECRET", "JWT_SECRET", "GITHUB_TOKEN",
    "GH_TOKEN", "MLFLOW_TRACKING_TOKEN", "AZURE_STORAGE_KEY", "SIGNING_KEY", "ACCESS_TOKEN", "AUTH_TOKEN",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_names_of_credentials_are_known(name: str) -> None:
    with pytest.raises(LiteralSecret, match=f"env.{name}: looks like a credential, by its name"):
        train_request(runtime="x", env={name: "hunter2"})
    option = name.lower().replace("_", "-")
    for args, field in (([f"--{option}=hunter2"], r"args\[0\]"), (["--lr", "1", f"--{option}", "hunter2"], r"args\[2\]")):
        with pytest.raises(LiteralSecret, match=f"{field}: looks like an option with a credential"):
            train_request(runtime="x", args=args)


def test_harmless_variables_and_arguments_are_accepted() -> None:
    variables = {
        "TOKENIZERS_PARALLELISM": "false", "HF_TOKEN_PATH": "/run/token", "PASSWORD_FILE": "/run/password", "MAX_TOKENS": "512",
        "PAD_TOKEN": "<pad>", "EOS_TOKEN": "</s>", "PASS_THROUGH": "1", "ALLOW_EMPTY_PASSWORD": "yes", "SINGLE_PASS": "1",
        "HF_TOKEN": "$(HUB)", "API_KEY": "EMPTY", "PASSWORD": "", "DB_PASSWORD": "${PW}", "PWD": "/work", "OLDPWD": "/home",
        "PUBLIC_KEY": "abc", "CACHE_KEY": "abc", "STORE_SECRET": "name-of-a-secret", "TOKEN_BUDGET": "100000", "KEY": "value",
        "VOCAB_TOKEN": "hello", "GOOGLE_APPLICATION_CREDENTIALS": "/run/key.json", "DATABASE_URL": "postgres://me@db/x",
    }  # fmt: skip
    args = ["--max_tokens", "512", "--pad-token", "<pad>", "--pad-token=<pad>", "--hf-token", "$(HF_TOKEN)", "--api-key=EMPTY",
            "--password-file=/run/x", "--password", "--verbose", "--add-bos-token", "true", "--special-token", "word"]  # fmt: skip
    request = train_request(runtime="x", env=variables, args=args)
    assert request.args == args


SHAPES = ("a", "a://", "://a:", "a:", "eyJ-", ".eyJ", "sk-a-", " sk-aaaa-aaaa-", "hf_", "&sig=", "bearer ", "-----BEGIN ", "://*",
          "host=a ", ";password=$", "authorization:", " ", "$(", "--password", "[", '{"a":', "***")  # fmt: skip


@pytest.mark.medium
@pytest.mark.parametrize("shape", SHAPES)
def test_text_of_any_shape_is_searched_in_linear_time(shape: str) -> None:
    text = (shape * (200_000 // len(shape) + 1))[:200_000]
    begun = time.process_time()
    list(literal_problems({"args": [text], "env": {"HF_TOKEN": text, text: "a"}}))
    assert time.process_time() - begun < 2


def test_a_manifest_is_searched_at_any_depth_but_a_secret_is_not() -> None:
    container = {"name": "node", "command": ["sh", "-c", "curl -H 'Authorization: Bearer " + LETTERS + "'"],
                 "env": [{"name": "PGPASSWORD", "value": "hunter2"}, {"name": "HF_TOKEN", "valueFrom": {}}]}  # fmt: skip
    manifest = {"kind": "TrainJob", "spec": {"template": [{"containers": [container]}]}, "status": {"note": SECRET}}
    where = "spec.template[0].containers[0]"
    assert [problem.field for problem in manifest_problems(manifest)] == [f"{where}.command[2]", f"{where}.env[0].PGPASSWORD"]
    assert not manifest_problems({"kind": "Secret", "stringData": {"token": SECRET}})


SECRET = "hf_" + LETTERS * 2


@pytest.mark.parametrize(
    ("fields", "field", "right"),
    [
        ({"env": {"TOKEN": SECRET}}, "env.TOKEN", "secretKeyRef"),
        ({"env": {"WANDB_API_KEY": SECRET[3:]}}, "env.WANDB_API_KEY", "secretKeyRef"),
        ({"dataset_env": {"AWS_SECRET_ACCESS_KEY": SECRET[3:]}}, "data.dataset_env.AWS_SECRET_ACCESS_KEY", "in data.dataset_env"),
        ({"args": ["--token", SECRET]}, "args[1]", "$(VARIABLE)"),
        ({"command": ["bash", "-c", f"login {SECRET}"]}, "command[2]", "$(VARIABLE)"),
        ({"dataset_uri": f"https://me:{SECRET}@host/x"}, "dataset_uri", "secrets.dataset_secret"),
        ({"model_uri": f"https://host/x?sig={SECRET}"}, "model_uri", "secrets.model_secret"),
        ({"annotations": {"note": SECRET}}, "placement.annotations.note", "are public"),
        ({"env": {"TOKEN": SECRET}, "num_nodes": 0, "workspace": SECRET}, "env.TOKEN", "secretKeyRef"),
    ],
)
def test_a_literal_is_refused_by_field_and_never_repeated(fields: Any, field: str, right: str) -> None:
    with pytest.raises(LiteralSecret) as raised:
        train_request(**{"runtime": "trl-sft", **fields})
    assert raised.value.problems[0].field == field
    assert right in raised.value.problems[0].message
    told = "".join(traceback.format_exception(raised.value)).replace(f"SECRET = {SECRET}", "") + str(raised.value.status())
    assert SECRET[3:] not in told


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({SECRET: {"note": SECRET}}, "run"),
        ({"training": {"env": {"DB_PASSWORD": "hunter2"}}}, "run.training.env.DB_PASSWORD"),
        ('{"job": {"env": {"DB_PASSWORD": "hunter2"}}}', "run.job.env.DB_PASSWORD"),
        ('{"note": "' + SECRET, "run"),
        ([{"name": "A", "value": "1", "note": SECRET}], "run[0].note"),
        ([{"name": "HF_TOKEN", "value": "hunter2"}], "run[0].HF_TOKEN"),
        ({SECRET.encode()}, "run[0]"),
        (MappingProxyType({"note": (SECRET,)}), "run.note[0]"),
    ],
)
def test_every_part_of_a_value_is_searched(value: Any, path: str) -> None:
    found = list(literal_problems({"run": value}))
    assert found[0].field == path
    assert SECRET not in str([(problem.field, problem.message) for problem in found])


@pytest.mark.parametrize(
    ("value", "is_refused"),
    [
        ({"env": {"HF_TOKEN": "{{ var.value.token }}", "AUTH_TOKEN": "Bearer {{ var.value.token }}"}}, False),
        ({"args": ["--token={{ x }}", "--password", "{{$.inputs.parameters['pw']}}"]}, False),
        ({"uri": "postgres://me:{{ conn.db.password }}@host/x?sig={{ params.signature }}"}, False),
        ({"env": '{"HF_TOKEN": "{{ x }}"}'}, False),
        ({"env": '{"DB_PASSWORD": "hunter2", "A": "{{ ds }}"}'}, True),
        ({"args": [f"--day={{{{ ds }}}} --token={SECRET}"]}, True),
        ({"args": ["{{ ds }}", "--password", "hunter2"]}, True),
        ({"args": [f"{{{{ '{SECRET}' }}}}"]}, True),
        ({"uri": "{{ ds }}://me:hunter2@host"}, True),
    ],
)
def test_templates_are_cut_out_and_the_rest_is_searched(value: dict[str, Any], is_refused: bool) -> None:
    with pytest.raises(LiteralSecret) if is_refused else nullcontext():
        reject_known_literals(value)


@pytest.mark.parametrize("token", TOKENS)
def test_credential_in_a_message_is_masked_to_its_end(token: str) -> None:
    text = masked(f"env.A: got '{token}', expected int\nnext line")
    assert not any(part in text for part in (token, LETTERS, "hunter2", "bWU6"))
    assert text.startswith("env.A: got '")
    assert masked("env.A: hf://org/name is not an int; see https://host:8080/path") == (
        "env.A: hf://org/name is not an int; see https://host:8080/path"
    )


def test_another_error_does_not_repeat_values_either() -> None:
    with pytest.raises(InvalidSettings) as raised:
        train_request(runtime="trl-sft", env={"PRIVATE": "not to be seen"}, num_nodes=-1)
    assert "not to be seen" not in str(raised.value)


def test_a_reference_reaches_the_program() -> None:
    reference = {"valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}}}
    request = train_request(runtime="trl-sft", env={"HF_TOKEN": reference, "A": "1"}, args=["$(HF_TOKEN)"])
    runtime = bundled_runtime("trl-sft")
    assert runtime is not None
    manifest = trainjob_manifest(resolve(request, runtime), Identity("o", "r", "s"), "team")
    admit(manifest)
    assert manifest["spec"]["trainer"]["env"] == [{"name": "A", "value": "1"}, {"name": "HF_TOKEN", **reference}]


@pytest.mark.parametrize(
    "value",
    [{}, {"value": "x"}, {"valueFrom": {}}, {"valueFrom": {"secretKeyRef": {"name": "a"}}}, {"valueFrom": {"secretRef": {}}}],
)
def test_a_reference_that_is_none_is_refused_by_name(value: Any) -> None:
    with pytest.raises(InvalidSettings, match="TOKEN"):
        train_request(runtime="trl-sft", env={"TOKEN": value})


@given(st.sampled_from(sorted(TOKENS)), st.text(max_size=10), st.text(max_size=10))
def test_a_value_is_found_wherever_it_stands_and_is_not_in_the_message(token: str, before: str, after: str) -> None:
    with pytest.raises(LiteralSecret) as raised:
        train_request(runtime="x", args=[f"{before} {token} {after}"])
    assert token not in str(raised.value)


@pytest.mark.parametrize("password", ["pa***ss", "***x", "x***"])
def test_asterisks_in_a_password_do_not_hide_it(password: str) -> None:
    with pytest.raises(LiteralSecret):
        reject_known_literals({"env": {"DB_PASSWORD": password}})
    reject_known_literals({"env": {"DB_PASSWORD": f"{password}-{{{{ var.value.password }}}}"}})
