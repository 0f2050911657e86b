"""An operator and its component have the same parameters, with the same defaults; the rest is of the orchestrator alone."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import trainwright.operators

pytestmark = pytest.mark.medium
OF_POD = {"workspace", "runs_on", "job", "namespace", "conn_id", "store_conn_id", "hub_conn_id"}
"""Of operators that do their step in the worker or in a pod; a component's pod has the workspace."""
OF_KFP = {
    "promote_model": {"summary"},
    "read_champion": {"uri", "digest", "run_id"},
    "register_model": {"model"},
    "roll_back_model": set[str](),
    "clean_up": {"status", "pipeline_run_id"},
    "pull_dvc_data": {"data"},
    "preprocess_dataset": {"dataset"},
    "plan_trials": set[str](),
    "pick_trial": {"summary"},
}
OF_AIRFLOW = {
    "promote_model": {"store_conn_id"},
    "read_champion": {"store_conn_id"},
    "register_model": {"store_conn_id", "hub_conn_id"},
    "roll_back_model": {"store_conn_id"},
    "clean_up": {"conn_id", "older_than_days", "abandoned", "all_namespaces"},
    "pull_dvc_data": OF_POD,
    "preprocess_dataset": OF_POD,
    "plan_trials": OF_POD,
    "pick_trial": OF_POD | {"trials"},
}
OF_THE_RUN = {"run_id", "workspace_path"}
"""Airflow knows the id of the run; a worker may be without the workspace."""
CLASSES = {
    "promote_model": "PromoteModelOperator",
    "read_champion": "ReadChampionOperator",
    "register_model": "RegisterModelOperator",
    "roll_back_model": "RollBackModelOperator",
    "clean_up": "CleanUpOperator",
    "pull_dvc_data": "PullDvcDataOperator",
    "preprocess_dataset": "PreprocessDatasetOperator",
    "plan_trials": "PlanTrialsOperator",
    "pick_trial": "PickTrialOperator",
}
OTHERS = ("SuspendTrainJobOperator", "ResumeTrainJobOperator", "DeleteTrainJobOperator", "StopHopelessTrialsOperator")


def parameters_of(operator: Any) -> dict[str, inspect.Parameter]:
    found: dict[str, inspect.Parameter] = {}
    for kind in reversed(operator.__mro__):
        if kind.__module__.startswith("trainwright.operators"):
            found |= inspect.signature(kind.__init__, eval_str=True).parameters
    return {name: one for name, one in found.items() if name not in ("self", "kwargs")}


@pytest.mark.parametrize("name", CLASSES)
def test_they_take_the_same(name: str) -> None:
    import trainwright.components

    inputs = getattr(trainwright.components, name).component_spec.inputs
    outputs = getattr(trainwright.components, name).component_spec.outputs or {}
    found = parameters_of(getattr(trainwright.operators, CLASSES[name]))
    assert set(found) - OF_AIRFLOW[name] == set(inputs) - OF_KFP[name]
    assert OF_KFP[name] <= set(inputs) | set(outputs)
    assert OF_AIRFLOW[name] <= set(found)
    for parameter in set(found) & set(inputs) - (OF_THE_RUN if OF_AIRFLOW[name] >= OF_POD else set()):
        default = found[parameter].default
        if default is inspect.Parameter.empty:
            assert not inputs[parameter].optional, parameter
        else:
            assert (default or None) == (inputs[parameter].default or None), parameter


@pytest.mark.parametrize("name", [*CLASSES.values(), *OTHERS])
def test_every_parameter_is_described_and_a_template(name: str) -> None:
    operator = getattr(trainwright.operators, name)
    found = set(parameters_of(operator))
    assert set(operator.template_fields) == found
    described = {line.split(":")[1].removeprefix("param ") for line in inspect.getdoc(operator).splitlines() if ":param" in line}
    assert described == found
    assert ":return:" in operator.__doc__
