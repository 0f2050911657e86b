"""Literal credentials in any setting and in any form: refused, and never repeated."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
import yaml
from factories import train_request, trainjob

from trainwright.api.errors import ApiError
from trainwright.jobs.credentials.secret_detection import LiteralSecret
from trainwright.jobs.request.invalid_settings import InvalidSettings
from trainwright.jobs.request.train_request import TrainRequest
from trainwright.jobs.wait.waiting import of_waiting

TOKEN = "hf_" + "aB3" * 10
URL = "https://me:hunter2@example.com/simple"


def with_env(**env: str) -> dict[str, Any]:
    entries = [{"name": name, "value": value} for name, value in env.items()]
    return trainjob("a", script="true", trainer={"env": entries})


def patched(**env: str) -> list[dict[str, Any]]:
    entries = [{"name": name, "value": value} for name, value in env.items()]
    pod = {"containers": [{"name": "node", "env": entries}]}
    jobs = [{"name": "node", "template": {"spec": {"template": {"spec": pod}}}}]
    return [{"manager": "a.b/c", "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}}]


def inner() -> str:
    return "hf_aB3aB3aB3aB3aB3aB3aB3aB3aB3aB3"


CASES: list[tuple[dict[str, Any], str]] = [
    ({"env": {"ANY": TOKEN}}, "env.ANY"),
    ({"env": {"DB_PASSWORD": "plain"}}, "env.DB_PASSWORD"),
    ({"env": json.dumps({"DB_PASSWORD": "plain"})}, "env.DB_PASSWORD"),
    ({"env": yaml.safe_dump({"DB_PASSWORD": "plain"})}, "env.DB_PASSWORD"),
    ({"env": f"{{ANY: {TOKEN}"}, "env"),
    ({"env": [{"name": "ANY", "value": TOKEN}]}, "env"),
    ({"env": {"ANY": {"valueFrom": {"secretKeyRef": {"name": TOKEN, "key": "k"}}}}}, "env.ANY"),
    ({"dataset_env": {"HF_TOKEN": "plain"}}, "data.dataset_env.HF_TOKEN"),
    ({"model_env": {"ANY": TOKEN}}, "data.model_env.ANY"),
    ({"func": f"def f():\n    return '{TOKEN}'"}, "func"),
    ({"func": f"# {TOKEN}\ndef f(:"}, "func"),
    ({"func": f"def f():\n    return {TOKEN}"}, "func"),
    ({"func": inner}, "func"),
    ({"func": {"name": "f", "source": f"def f(): return '{TOKEN}'"}}, "func"),
    ({"func": {"name": "f", "source": [TOKEN]}}, "func"),
    ({"func": "def f(a): ...", "func_args": {"a": {"b": [TOKEN]}}}, "func_args"),
    ({"func": "def f(a): ...", "func_args": json.dumps({"a": TOKEN})}, "func_args"),
    ({"settings": {"extra": ["--hub_token", TOKEN]}}, "settings"),
    ({"settings": f"extra: [{TOKEN}"}, "settings"),
    ({"args": ["--token", TOKEN]}, "args"),
    ({"command": f'["a", "{TOKEN}"]'}, "command"),
    ({"pip_index_urls": [URL], "packages_to_install": ["a"], "code": "/x", "command": ["a"]}, "pip_index_urls"),
    ({"packages_to_install": [f"a @ {URL}"], "code": "/x", "command": ["a"]}, "packages_to_install"),
    ({"code": "git+https://me:hunter2@example.com/a@main", "command": ["a"]}, "code"),
    ({"code": f"git+https://{TOKEN}@example.com/a@main", "command": ["a"]}, "code"),
    ({"dataset_uri": URL}, "dataset_uri"),
    ({"model_uri": f"https://h/x?sig={'a' * 30}"}, "model_uri"),
    ({"export_uri": "s3://AKIAABCDEFGHIJKLMNOP:x@b/c"}, "export_uri"),
    ({"image": URL}, "image"),
    ({"workspace": TOKEN}, "workspace"),
    ({"topology": TOKEN}, "placement.topology"),
    ({"resume": URL}, "resume"),
    ({"labels": {"a": TOKEN}}, "labels"),
    ({"annotations": json.dumps({"a": TOKEN})}, "placement.annotations"),
    ({"runtime_patches": patched(ANY=TOKEN)}, "placement.runtime_patches"),
    ({"runtime_patches": patched(DB_PASSWORD="plain")}, "placement.runtime_patches"),
    ({"runtime_patches": json.dumps(patched(DB_PASSWORD="plain"))}, "placement.runtime_patches"),
    ({"runtime_patches": yaml.safe_dump(patched(DB_PASSWORD="plain"))}, "placement.runtime_patches"),
    ({"tolerations": [{"key": TOKEN}]}, "placement.tolerations"),
    ({"affinity": {"a": TOKEN}}, "placement.affinity"),
    ({"manifest": with_env(ANY=TOKEN)}, "manifest"),
    ({"manifest": with_env(DB_PASSWORD="plain")}, "manifest"),
    ({"manifest": json.dumps(with_env(DB_PASSWORD="plain"))}, "manifest"),
    ({"manifest": yaml.safe_dump(with_env(ANY=TOKEN))}, "manifest"),
    ({"manifest": {**with_env(ANY=TOKEN), "specs": 3}}, "manifest"),
    ({"manifest": trainjob("a", metadata={"annotations": {"a": TOKEN}})}, "manifest"),
]


@pytest.mark.parametrize(("fields", "field"), CASES)
def test_a_literal_credential_is_refused_and_not_repeated(
    fields: dict[str, Any], field: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG), pytest.raises(LiteralSecret) as raised:
        train_request(**fields)
    assert any(problem.field.startswith(field) for problem in raised.value.problems)
    said = f"{raised.value} {raised.value.problems} {caplog.text}"
    for secret in (TOKEN, "hunter2", "plain", "a" * 30):
        assert secret not in said


@pytest.mark.parametrize(
    "manifest", [f"a: [{TOKEN}", f"*{TOKEN}", f"'{TOKEN}", f"!{TOKEN} a", f"!!int {TOKEN}", f"kind: {TOKEN}"]
)
def test_a_manifest_that_cannot_be_read_is_not_repeated(manifest: str) -> None:
    with pytest.raises((ValueError, ApiError)) as raised:
        train_request(manifest=manifest)
    assert TOKEN not in str(raised.value)


@pytest.mark.parametrize(("group", "name", "value"), [("limits", "preemption_budget", 1), ("ending", "tie_to_run", False)])
def test_setting_of_submissions_is_refused_where_a_step_only_waits(group: str, name: str, value: Any) -> None:
    with pytest.raises(InvalidSettings, match=rf"{group}\.{name}: of the step that submits the job"):
        of_waiting(TrainRequest.parse({group: {name: value}}))
    assert of_waiting(TrainRequest.parse({"limits": {"restarts": 2}, "ending": {"on_cancel": "keep"}})).limits.restarts == 2


@pytest.mark.parametrize("value", [True, False, "1_0"])
@pytest.mark.parametrize("path", ["num_nodes", "limits.restarts", "limits.run_timeout_seconds", "ending.waiter_lease_seconds"])
def test_flag_and_python_number_are_no_numbers(path: str, value: Any) -> None:
    group, _, name = path.rpartition(".")
    with pytest.raises(InvalidSettings, match=f"{path}: expected a number, not"):
        TrainRequest.parse({group: {name: value}} if group else {name: value})


@pytest.mark.parametrize(
    "fields",
    [
        {"env": {"DB_PASSWORD": {"valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}}},
        {"env": {"DB_PASSWORD": "$(OTHER)", "URL": "postgres://me:$(PASSWORD)@h/x"}},
        {"pip_index_urls": ["https://me:$(TOKEN)@h/simple"], "packages_to_install": ["a"], "code": "/x", "command": ["a"]},
        {"code": "git+ssh://git@github.com/a/b@main", "command": ["a"]},
        {"args": ["--token_budget", "3", "a:b@c"]},
    ],
)
def test_references_are_none(fields: dict[str, Any]) -> None:
    train_request(**fields)
