"""A person decides about a promotion: what is asked, what an answer leads to, and where the settings come from."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from jinja2 import Environment
from support.on_first_use import OnFirstUse

airflow_api = OnFirstUse("trainwright.operators.values.airflow_api")

pytestmark = pytest.mark.medium
EXTRA = {
    "run": "scheduled__1",
    "checkpoint": "s3://models/support/scheduled__1/checkpoint-500",
    "manifest": "sha256:" + "a" * 64,
    "step": 500,
    "loss_before": 4.0,
    "loss_after": 1.25,
}


@pytest.fixture(scope="module")
def module() -> Any:
    from trainwright.example_dags import approve_then_promote

    return approve_then_promote


OF_VARIABLE = ("s3://models/support", "champion")
OF_RUN = {"export_uri": "s3://models/of-the-run", "alias": "of-the-run"}


def candidate(module: Any, params: dict[str, Any], *extras: dict[str, Any], settings: tuple[str, str] = OF_VARIABLE) -> Any:
    given = {name: param.value for name, param in module.PARAMETERS.items()} | params
    events = {module.MODEL: [SimpleNamespace(extra=extra) for extra in extras]}
    function = module.dag.get_task("candidate").python_callable
    return function(*settings, params=given, triggering_asset_events=events if extras else None)


def test_dag_asks_between_retraining_and_promotion(module: Any) -> None:
    dag = module.dag
    assert [task.task_id for task in dag.topological_sort()] == ["candidate", "approve", "promote"]
    assert dag.max_active_runs == 1
    assert module.MODEL.name == "trainwright_retrained_model"
    approve = dag.get_task("approve")
    assert approve.response_timeout.days == 7
    assert not approve.fail_on_reject


def test_the_export_is_the_one_that_was_published_last_or_that_of_the_parameters(module: Any) -> None:
    export_uri, alias = OF_VARIABLE
    assert candidate(module, {}, {"other": 1}, {**EXTRA, "step": 1}, EXTRA) == {**EXTRA, "export_uri": export_uri, "alias": alias}
    by_hand = candidate(module, {"checkpoint_uri": "file:///x", "checkpoint_digest": "sha256:b"}, EXTRA)
    assert (by_hand["checkpoint"], by_hand["manifest"], by_hand["run"]) == ("file:///x", "sha256:b", "")
    with pytest.raises(ValueError, match="checkpoint_uri: set the export to promote"):
        candidate(module, {})


def test_the_question_shows_what_is_decided_about(module: Any) -> None:
    context = {"ti": SimpleNamespace(xcom_pull=lambda _task: {**EXTRA, "alias": "champion"})}
    shown = [Environment().from_string(text).render(**context) for text in (module.SUBJECT, module.BODY)]
    assert shown[0] == f"Promote {EXTRA['checkpoint']} to champion?"
    assert "| loss after | 1.25 |" in shown[1]
    assert shown[1].startswith("| | |\n|---|---|\n")


@pytest.mark.parametrize(
    ("chosen", "of_run", "expected"),
    [
        ({}, {}, ("s3://models/support", "production")),
        ({}, OF_RUN, ("s3://models/of-the-run", "of-the-run")),
        ({"evaluation": {"promote_alias": "staging"}}, {}, ("s3://models/support", "staging")),
        ({"evaluation": {"promote_alias": "staging"}, "export_uri": "s3://mine"}, OF_RUN, ("s3://mine", "staging")),
        ({"evaluation": {}}, {}, ("s3://models/support", "champion")),
    ],
)
def test_export_uri_and_alias_are_those_of_the_form_else_of_the_run_else_of_the_variable(
    module: Any, chosen: dict[str, Any], of_run: dict[str, str], expected: tuple[str, str]
) -> None:
    variable = SimpleNamespace(
        json={"trainwright_retraining": {"export_uri": "s3://models/support", "evaluation": {"promote_alias": "production"}}}
    )
    params = {name: param.value for name, param in module.PARAMETERS.items()} | chosen
    rendered = [
        Environment().from_string(text).render(params=params, var=variable) for text in module.dag.get_task("candidate").op_args
    ]
    found = candidate(module, chosen, {**EXTRA, **of_run}, settings=(rendered[0], rendered[1]))
    promote, instance = module.dag.get_task("promote"), SimpleNamespace(xcom_pull=lambda _task: found)
    assert tuple(Environment().from_string(text).render(ti=instance) for text in (promote.export_uri, promote.alias)) == expected


def test_nobody_is_asked_about_what_the_run_has_decided(module: Any) -> None:
    with pytest.raises(airflow_api.AirflowSkipException, match=r"checkpoint-500 was decided about by the run that trained it"):
        candidate(module, {}, {**EXTRA, "promoted": False})
