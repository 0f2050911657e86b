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


@pytest.mark.parametrize("module", ["finetune", "scheduled_retraining"])
def test_every_setting_of_its_steps_is_a_parameter(module: str) -> None:
    from importlib import import_module

    from trainwright.jobs.request.setting_names import EVALUATION_SETTINGS
    from trainwright.jobs.request.train_request import TrainRequest

    dag = import_module(f"trainwright.example_dags.{module}").dag
    given_by_the_chain = {"dataset_digest", "model_digest", "func"}  # a function belongs into the text of a DAG
    settings = set(TrainRequest.model_fields) - given_by_the_chain
    assert settings <= set(dag.params)
    training, evaluation = dag.get_task("train"), dag.get_task("evaluate")
    for name in settings - {"workspace"}:
        assert f"params.{name}" in str(getattr(training, name)), name
    for name in set(EVALUATION_SETTINGS) - {"image", "resources_per_node"}:
        assert f"params.{name}" in str(getattr(evaluation, name)), name


def test_defaults_of_the_parameters_are_those_of_the_request() -> None:
    from trainwright.example_dags.chain import TRAINING
    from trainwright.jobs.request.train_request import TrainRequest

    rendered = {name: param.value for name, param in TRAINING.items()}
    assert TrainRequest.from_parameters(rendered) == TrainRequest()
