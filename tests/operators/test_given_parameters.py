"""Parameters of a mapped task are checked when its DAG is parsed, as those of any other."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from inspect import signature
from typing import Any

import pytest
from support.on_first_use import OnFirstUse

from trainwright.jobs.credentials.secret_detection import LiteralSecret

sdk = OnFirstUse("airflow.sdk")
operators = OnFirstUse("trainwright.operators")

pytestmark = pytest.mark.medium
TOKEN = "hf_abcdefghijklmnopqrstuvwxyzABCDEFGH"
WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"placement": {"queue": "gpus"}}, ValueError, r"placement\.queue: unknown; did you mean queue_name"),
    ({"limits": {"queue_name": "gpus"}}, ValueError, r"limits\.queue_name: unknown; it is placement\.queue_name"),
    ({"restarts": 1}, TypeError, r"restarts: it is a setting of a group: limits=\{'restarts'"),
    ({"limits": {"job_retries": 2}}, ValueError, r"limits\.job_retries: for Kubeflow Pipelines"),
    ({"env": {"HF_TOKEN": TOKEN}}, LiteralSecret, "env.HF_TOKEN"),
]


@pytest.fixture(autouse=True)
def _dag() -> Any:
    with sdk.DAG("mapped", schedule=None):
        yield


def training(**given: Any) -> Any:
    return operators.TrainJobOperator.partial(task_id="train", runtime="torch-distributed", **given)


WAYS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "partial": lambda given: training(**given),
    "expand": lambda given: training().expand(**{name: [value] for name, value in given.items()}),
    "expand_kwargs": lambda given: training().expand_kwargs([{"num_nodes": 2}, given]),
    "decorator": lambda given: sdk.task.trainjob(runtime="torch-distributed", **given),
}


@pytest.mark.parametrize(("given", "error", "message"), WRONG)
@pytest.mark.parametrize("way", WAYS)
def test_wrong_parameter_of_a_mapped_task_is_refused(
    way: str, given: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message) as raised:
        WAYS[way](given)
    assert TOKEN not in str(raised.value)


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("TrainJobOperator", {"queue_name": "gpus"}, "placement="),
        ("TrainJobOperator", {"default_args": {"run_timeout_seconds": 60}}, "limits="),
        ("EvaluateOperator", {"checkpoint_uri": "u", "checkpoint_digest": "d", "few_shot": 1}, "harness="),
        ("TrainJobSensor", {"trainjob": "a", "run_timeout_seconds": 60}, "limits="),
    ],
)
def test_setting_of_a_group_in_its_place_is_refused_with_its_path(name: str, given: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=f"it is a setting of a group: {message}"):
        getattr(operators, name)(task_id="task", **given)


def test_default_arguments_of_other_tasks_are_left_to_them() -> None:
    given = {"retries": 1, "queue_name": "gpus"}  # of StartRunOperator
    assert operators.TrainJobOperator(task_id="train", run="{{ ti.xcom_pull('start') }}", default_args=given).retries == 1


NAMES = [name for name in import_module("trainwright.operators").__all__ if name.endswith(("Operator", "Sensor"))]


@pytest.mark.parametrize("name", NAMES)
def test_literal_credential_in_any_field_of_any_operator_is_refused(name: str) -> None:
    operator = getattr(operators, name)
    known = [one.__init__ for one in operator.__mro__ if one.__module__.startswith("trainwright") and "__init__" in vars(one)]
    parameters = {
        each.name: each for init in known for each in signature(init).parameters.values() if each.name in operator.template_fields
    }
    needed = {each.name: "x" for each in parameters.values() if each.default is each.empty}
    for field in operator.template_fields:
        with pytest.raises((LiteralSecret, ValueError)):  # a field with few choices refuses it as any other value
            operator(task_id=field, **{**needed, field: f"{TOKEN} {{{{ ds }}}}"})
        with pytest.raises(LiteralSecret):
            operator.partial(task_id="task", **{field: [{"a": {TOKEN}}]})


@pytest.mark.parametrize(
    "given",
    [
        {"env": '{"HF_TOKEN": "hunter2", "A": "{{ ds }}"}'},
        {"run": {"training": {"env": {"HF_TOKEN": "hunter2"}}}},
        {"tracking": [f"mlflow:https://me:{TOKEN}@host"]},
        {"args": ["{{ ds }}", "--token", TOKEN]},
        {"labels": {TOKEN: "a"}},
        {"func": f"def f():\n    return '{TOKEN}'"},
        {"func": import_module},
    ],
)
@pytest.mark.parametrize("way", ["operator", "partial", "expand", "expand_kwargs"])
def test_literal_credential_at_any_depth_is_refused(way: str, given: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inspect.getsource", lambda _: f"def f():\n    return '{TOKEN}'")  # of the function
    ways = {**WAYS, "operator": lambda given: operators.TrainJobOperator(task_id="train", **given)}
    with pytest.raises(LiteralSecret) as raised:
        ways[way](given)
    assert TOKEN not in str(raised.value)


def test_literal_credential_in_a_call_of_a_decorated_function_is_refused() -> None:
    @sdk.task.trainjob(env={"A": "b"})
    def fit(a: Any = "", b: str = "") -> None: ...

    for call in (lambda: fit(TOKEN), lambda: fit(b=f"{TOKEN} {{{{ ds }}}}")):
        with pytest.raises(LiteralSecret):
            call()


def test_templates_and_results_of_other_tasks_are_mapped() -> None:
    @sdk.task
    def queues() -> list[str]:
        return ["a"]

    found = queues()
    mapped = training(env={"TOKEN": "{{ var.value.token }}"}, placement=operators.Placement(queue_name=found)).expand(
        logging=[{"logs": "all"}, "{{ params.logging }}"], settings=found
    )
    assert mapped.upstream_task_ids == {"queues"}
