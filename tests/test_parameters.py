"""One setting, one name, type and default: in the request, the KFP component, the Airflow operator and the command line."""

from __future__ import annotations

import inspect
import types
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pytest
import typer.main

from trainwright.cli import app
from trainwright.cli.request_options import EXCLUDED_SETTINGS, with_settings
from trainwright.cli.submit import submit
from trainwright.jobs import TrainRequest
from trainwright.jobs.request.setting_names import SETTINGS

pytestmark = pytest.mark.medium
FIELDS = TrainRequest.model_fields
OWN_OF_COMPONENT = {
    "run_id": None,
    "namespace": "",
    "submission_mode": "",
    "tie_to_run": True,
    "trial": "",
    "tracking": [],
    "workspace_path": "",
    "task_config": None,
    "job_retries": 0,
    "task_settings": {},
}
OWN_OF_OPERATOR = {
    "run_id",
    "namespace",
    "submission_mode",
    "conn_id",
    "store_conn_id",
    "hub_conn_id",
    "tracking",
    "workspace_path",
    "wait_for_completion",
    "durable",
    "deferrable",
    "log_poll_interval",
    "min_defer_seconds",
}
OWN_OF_COMMAND = {
    "filename",
    "run_id",
    "dry_run",
    "validate",
    "allow_literal_secrets",
    "wait",
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


def plain(annotation: Any) -> type:
    """The type of a value, without what checks it."""
    if get_origin(annotation) is Annotated:
        return plain(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return plain(next(one for one in get_args(annotation) if one is not type(None)))
    if get_origin(annotation) is Literal:
        return str
    return get_origin(annotation) or annotation


OF_PIPELINES = {"waiter_lease_seconds": 600}
"""Defaults of the components that are not those of Airflow and the command line: a pod that waits is seldom cut off for long."""


def of_component(name: str) -> tuple[str, Any]:
    """KFP's type and default: it has no None, no functions and no unions."""
    field = FIELDS[name]
    kind, default = plain(field.annotation), OF_PIPELINES.get(name, field.get_default())
    if name in ("func", "manifest"):
        return "STRING", ""
    if kind is int:
        return "NUMBER_INTEGER", default or 0
    if kind is bool:
        return "BOOLEAN", default
    if kind in (dict, list):
        return {dict: "STRUCT", list: "LIST"}[kind], kind()
    assert kind is str, name
    return "STRING", default


def test_the_component_takes_the_same() -> None:
    from trainwright.components import train

    inputs = train.component_spec.inputs
    assert set(inputs) == set(FIELDS) | set(OWN_OF_COMPONENT)
    kinds = {"String": "STRING", "Integer": "NUMBER_INTEGER", "Boolean": "BOOLEAN", "Dict": "STRUCT", "List": "LIST"}
    found = {name: (kinds.get(inputs[name].type, inputs[name].type), inputs[name].default) for name in FIELDS}
    assert found == {name: of_component(name) for name in FIELDS}
    assert {name: inputs[name].default for name in OWN_OF_COMPONENT} == OWN_OF_COMPONENT
    assert not inputs["run_id"].optional


OF_WAITING = {
    "queue_timeout_seconds",
    "start_timeout_seconds",
    "run_timeout_seconds",
    "fail_if_stuck",
    "fail_on_divergence",
    "lost_node_timeout_seconds",
    "logs",
    "log_bytes",
    "on_cancel",
    "waiter_lease_seconds",
}
ONLY_TOGETHER = {"preemption_budget", "job_retries", "trial", "tracking", "workspace_path"}
"""Submitting again after a preemption or a failure needs both the request and the wait; so do a trial that may fail, and tracking."""
OF_BOTH = {"run_timeout_seconds", "on_cancel", "waiter_lease_seconds"}


def test_submitting_and_waiting_take_the_same_apart() -> None:
    from trainwright.components import submit_train_job, train, wait_train_job

    whole, submit, wait = (component.component_spec.inputs for component in (train, submit_train_job, wait_train_job))
    assert set(submit) == set(whole) - (OF_WAITING - OF_BOTH) - ONLY_TOGETHER
    assert set(wait) == OF_WAITING | {"trainjob"}
    for name in set(whole):
        found = [(inputs[name].type, inputs[name].default) for inputs in (whole, submit, wait) if name in inputs]
        assert len(set(map(str, found))) == 1, name


def test_the_operator_takes_the_same() -> None:
    from trainwright.operators import TrainJobOperator

    parameters = inspect.signature(TrainJobOperator.__init__, eval_str=True).parameters
    found = {name: one for name, one in parameters.items() if name not in ("self", "kwargs")}
    assert set(found) == set(FIELDS) | OWN_OF_OPERATOR
    for name, field in FIELDS.items():
        default = field.get_default()
        assert found[name].default == (None if default in ({}, []) else default), name
        kind = plain(field.annotation)
        hints = {plain(one) for one in get_args(found[name].annotation)} or {found[name].annotation}
        if name == "func":
            assert {str, type(None)} < hints
        else:
            assert kind in hints, name
        assert found[name].annotation is str or str in hints, f"{name} can be a template"
    assert set(SETTINGS) == set(FIELDS)
    assert len(SETTINGS) == len(set(SETTINGS))
    assert set(TrainJobOperator.template_fields) == (set(FIELDS) - {"func"}) | {
        "namespace",
        "run_id",
        "submission_mode",
        "conn_id",
        "store_conn_id",
        "hub_conn_id",
        "tracking",
        "workspace_path",
    }
    assert set(TrainJobOperator.template_fields_renderers) <= set(TrainJobOperator.template_fields)


def test_the_operator_keeps_what_it_is_given() -> None:
    from trainwright.operators import TrainJobOperator

    task = TrainJobOperator(task_id="t")
    assert all(hasattr(task, name) for name in SETTINGS)
    assert task.request() == TrainRequest()
    task = TrainJobOperator(task_id="t", num_nodes="2", env='{"A": "1"}', log_bytes="5")
    assert task.request() == TrainRequest(num_nodes=2, env={"A": "1"}, log_bytes=5)


def test_the_command_takes_the_same() -> None:
    group: Any = typer.main.get_command(app)
    options = {param.name: param for param in group.commands["submit"].params}
    spelled = {opt: param for param in options.values() for opt in param.opts}
    annotations = with_settings(submit).__annotations__
    assert set(EXCLUDED_SETTINGS) <= set(FIELDS)
    for name, field in FIELDS.items():
        if name in NOT_OF_COMMAND:
            continue
        spelling = RENAMED.get(name, f"--{name.replace('_', '-')}")
        assert spelling in spelled, name
        option = spelled[spelling]
        if name in EXCLUDED_SETTINGS:
            continue
        assert option.default is None, "nothing given is nothing said"
        kind = plain(field.annotation)
        wanted = list[str] | None if kind is dict else int | None if kind is int else str | None
        assert get_args(annotations[name])[0] == wanted, name
        assert field.description in option.help, name
    elsewhere = {spelled[RENAMED.get(name, f"--{name.replace('_', '-')}")].name for name in EXCLUDED_SETTINGS - NOT_OF_COMMAND}
    assert set(options) - set(FIELDS) - elsewhere == (OWN_OF_COMMAND | {"logs"}) - elsewhere - set(FIELDS)
    assert spelled["--logs-of"].default == FIELDS["logs"].get_default()
    assert spelled["--log-bytes"].default == FIELDS["log_bytes"].get_default()
    assert spelled["--resume"].default == FIELDS["resume"].get_default()
    assert spelled["--resume-secret"].default == FIELDS["resume_secret"].get_default()


@pytest.mark.parametrize("name", sorted(FIELDS))
def test_every_setting_is_described_in_a_group(name: str) -> None:
    field = FIELDS[name]
    assert field.description
    assert field.description.endswith((".", "[#subdirectory=FOLDER]"))
    extra: Any = field.json_schema_extra
    assert extra["group"]
