"""Settings that edges say in their own way; everything else `make edges` writes."""

from __future__ import annotations

from typing import Any

import pytest
import typer.main
from factories import train_request

from trainwright.cli import app
from trainwright.cli.request_options import EXCLUDED_SETTINGS, TABLE
from trainwright.jobs.request.setting import Settings, settings_of
from trainwright.jobs.request.train_request import TrainRequest
from trainwright.steps import requests

pytestmark = pytest.mark.medium
OWN_OF_COMMAND = {
    "filename",
    "run_id",
    "dry_run",
    "validate",
    "allow_literal_secrets",
    "wait",
    "tracking",
    "timeout",
    "namespace",
    "kubeconfig",
    "home",
    "submission_mode",
    "output",
}
RENAMED = {"manifest": "--filename", "logs": "--logs-of"}
"""Settings that the command line says in another way; `--logs` turns them on, `--logs-of` says whose."""
NOT_OF_COMMAND = {"waiter_lease_seconds", "tie_to_run", "preemption_budget", "job_retries"}
"""A person who waits may leave: the job goes on. There is neither a run of a pipeline nor a step that submits again."""


def test_the_operator_keeps_what_it_is_given() -> None:
    from trainwright.operators import TrainJobOperator

    task = TrainJobOperator(task_id="t")
    assert all(hasattr(task, name) for name in settings_of(TrainRequest))
    assert task.request() == train_request()
    task = TrainJobOperator(task_id="t", num_nodes="2", env='{"A": "1"}', logging={"log_bytes": "5"})
    assert task.request() == train_request(num_nodes=2, env={"A": "1"}, log_bytes=5)


def test_the_command_takes_all_settings() -> None:
    group: Any = typer.main.get_command(app)
    options = {param.name: param for param in group.commands["submit"].params}
    spelled = {opt: param for param in options.values() for opt in param.opts}
    assert set(TABLE) >= EXCLUDED_SETTINGS
    elsewhere = {spelled[RENAMED.get(name, f"--{name.replace('_', '-')}")].name for name in EXCLUDED_SETTINGS - NOT_OF_COMMAND}
    assert set(TABLE) - EXCLUDED_SETTINGS <= set(options)
    assert set(options) - set(TABLE) - elsewhere == (OWN_OF_COMMAND | {"logs"}) - elsewhere - set(TABLE)
    assert spelled["--logs-of"].default == str(TABLE["logs"].default)
    assert spelled["--log-bytes"].default == TABLE["log_bytes"].default
    assert spelled["--resume"].default == TABLE["resume"].default
    assert spelled["--resume-secret"].default == TABLE["resume_secret"].default


def test_every_setting_is_described_in_a_sentence() -> None:
    classes: list[type[Settings]] = [TrainRequest]
    classes += [one for one in vars(requests).values() if isinstance(one, type) and issubclass(one, Settings)]
    said = {**TABLE, **{f"{cls.__name__}.{name}": one for cls in classes for name, one in settings_of(cls).items()}}
    assert [name for name, setting in said.items() if not setting.description.endswith(".")] == []
