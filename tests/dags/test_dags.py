"""The DAGs parse, and chain what they say; the run itself is in tests/e2e."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.medium


def test_the_finetune_dag_chains_the_six_steps() -> None:
    from trainwright.example_dags.finetune import dag

    order = [task.task_id for task in dag.topological_sort()]
    assert order[0] == "start-run"
    assert set(order[1:3]) == {"initialize-dataset", "initialize-model"}
    assert order[3:] == ["train", "export-checkpoint", "evaluate"]
    assert dag.get_task("train").upstream_task_ids == {"initialize-dataset", "initialize-model"}


def test_its_parameters_are_those_of_the_quickstart() -> None:
    from dataclasses import fields

    from trainwright.example_dags.finetune import PARAMETERS
    from trainwright.quickstart.orchestrator import Parameters

    assert {field.name for field in fields(Parameters)} <= set(PARAMETERS)
