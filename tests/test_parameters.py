"""Settings that edges say in their own way; everything else `make edges` writes."""

from __future__ import annotations

from typing import Any

import pytest
import typer.main

from trainwright.cli import app
from trainwright.cli.request_options import EXCLUDED_SETTINGS
from trainwright.jobs import TrainRequest
from trainwright.jobs.request.setting_names import SETTINGS
from trainwright.jobs.request.settings_table import TABLE

pytestmark = pytest.mark.medium
FIELDS = TrainRequest.model_fields
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
NOT_OF_COMMAND = {"waiter_lease_seconds"}
"""A person who waits may leave: the job goes on."""


def test_the_operator_keeps_what_it_is_given() -> None:
    from trainwright.operators import TrainJobOperator

    task = TrainJobOperator(task_id="t")
    assert all(hasattr(task, name) for name in SETTINGS)
    assert task.request() == TrainRequest()
    task = TrainJobOperator(task_id="t", num_nodes="2", env='{"A": "1"}', log_bytes="5")
    assert task.request() == TrainRequest(num_nodes=2, env={"A": "1"}, log_bytes=5)


def test_the_command_takes_all_settings() -> None:
    group: Any = typer.main.get_command(app)
    options = {param.name: param for param in group.commands["submit"].params}
    spelled = {opt: param for param in options.values() for opt in param.opts}
    assert set(EXCLUDED_SETTINGS) <= set(FIELDS)
    elsewhere = {spelled[RENAMED.get(name, f"--{name.replace('_', '-')}")].name for name in EXCLUDED_SETTINGS - NOT_OF_COMMAND}
    assert set(options) - set(FIELDS) - elsewhere == (OWN_OF_COMMAND | {"logs"}) - elsewhere - set(FIELDS)
    assert spelled["--logs-of"].default == FIELDS["logs"].get_default()
    assert spelled["--log-bytes"].default == FIELDS["log_bytes"].get_default()
    assert spelled["--resume"].default == FIELDS["resume"].get_default()
    assert spelled["--resume-secret"].default == FIELDS["resume_secret"].get_default()


def test_every_setting_is_described_in_a_sentence() -> None:
    assert [name for name, setting in TABLE.items() if not setting.description.endswith((".", "[#subdirectory=FOLDER]"))] == []
