"""Every parameter of an operator is described, and a template."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import trainwright.operators

pytestmark = pytest.mark.medium
OPERATORS = [
    "CleanUpOperator",
    "DeleteTrainJobOperator",
    "EvaluateOperator",
    "ExportCheckpointOperator",
    "InitializeDatasetOperator",
    "InitializeModelOperator",
    "PickTrialOperator",
    "PlanTrialsOperator",
    "PreprocessDatasetOperator",
    "PromoteModelOperator",
    "PullDvcDataOperator",
    "ReadChampionOperator",
    "RegisterModelOperator",
    "ResumeTrainJobOperator",
    "RollBackModelOperator",
    "StartRunOperator",
    "StopHopelessTrialsOperator",
    "SuspendTrainJobOperator",
]


def parameters_of(operator: Any) -> dict[str, inspect.Parameter]:
    found: dict[str, inspect.Parameter] = {}
    for kind in reversed(operator.__mro__):
        if kind.__module__.startswith("trainwright.operators"):
            found |= inspect.signature(kind.__init__, eval_str=True).parameters
    return {name: one for name, one in found.items() if name not in ("self", "args", "kwargs")}


@pytest.mark.parametrize("name", OPERATORS)
def test_every_parameter_is_described_and_a_template(name: str) -> None:
    operator = getattr(trainwright.operators, name)
    found = set(parameters_of(operator))
    assert set(operator.template_fields) == found
    described = {line.split(":")[1].removeprefix("param ") for line in inspect.getdoc(operator).splitlines() if ":param" in line}
    assert described == found
    assert ":return:" in operator.__doc__
