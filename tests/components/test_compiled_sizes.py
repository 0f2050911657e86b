"""The sizes of compiled tasks and pipelines: a workflow has each task six times, and a cluster refuses a workflow of 3 MB."""

from __future__ import annotations

import json
from typing import Any

import pytest
from interfaces import compilables
from support.on_first_use import OnFirstUse

from trainwright.pipeline_runs.compiled import CompiledPipeline
from trainwright.pipeline_runs.run_checks import SHOWN, forgotten_values, object_texts, workflow_bytes
from trainwright.pipeline_runs.source import shipped_pipelines

json_format = OnFirstUse("google.protobuf.json_format")
shipped = OnFirstUse("trainwright.components")
step_component = OnFirstUse("trainwright.components.step_component")
pytestmark = pytest.mark.medium
TASKS = {
    "clean_up": 1.2,
    "evaluate": 2.9,
    "export_checkpoint": 2.3,
    "initialize_dataset": 2.4,
    "initialize_model": 1.0,
    "pick_trial": 1.2,
    "plan_trials": 1.4,
    "preprocess_dataset": 1.9,
    "promote_model": 1.9,
    "pull_dvc_data": 1.4,
    "read_champion": 1.3,
    "register_model": 1.6,
    "roll_back_model": 1.0,
    "start_run": 2.5,
    "submit_train_job": 3.6,
    "train": 4.4,
    "wait_train_job": 1.1,
}
PIPELINES = {"finetune": 49, "full_pipeline": 58, "retrain": 77, "sweep": 50}


@pytest.fixture(scope="module")
def pipelines() -> dict[str, CompiledPipeline]:
    return shipped_pipelines().compiled


def kilobytes(value: Any) -> float:
    """As a server stores it."""
    return len(json.dumps(value, separators=(",", ":"))) / 1000


def task_of(component: Any) -> float:
    """The size of a component in a pipeline: its interface and its container."""
    spec = json_format.MessageToDict(step_component.without_descriptions(component.component_spec).to_pipeline_spec())
    return kilobytes([*spec["components"].values(), *spec["deploymentSpec"]["executors"].values()])


def test_compiled_tasks_are_small() -> None:
    components = {name: each for name, each in compilables().items() if not name.endswith("_pipeline")}
    found = {name: task_of(component) for name, component in components.items()}
    assert found.keys() == TASKS.keys()
    assert {name: round(size, 1) for name, size in found.items() if not 0.8 * TASKS[name] < size < TASKS[name]} == {}


def test_compiled_pipelines_are_small(pipelines: dict[str, CompiledPipeline]) -> None:
    found = {name: sum(map(kilobytes, one.documents)) for name, one in pipelines.items()}
    assert found.keys() == PIPELINES.keys()
    assert {name: round(size) for name, size in found.items() if not 0.8 * PIPELINES[name] < size < PIPELINES[name]} == {}


def test_shipped_pipelines_stay_below_the_size_that_the_server_shows(pipelines: dict[str, CompiledPipeline]) -> None:
    for name, one in pipelines.items():
        assert workflow_bytes(one) < 0.8 * SHOWN, name


def test_shipped_pipelines_have_no_text_inside_an_object(pipelines: dict[str, CompiledPipeline]) -> None:
    assert [warning for one in pipelines.values() for warning in (*object_texts(one), *forgotten_values(one))] == []


def test_task_of_a_function_has_only_the_source_of_the_function() -> None:
    @shipped.train_function
    def fit(seed: int, rate: float = 0.1) -> float:
        return seed * rate

    assert 3.4 < task_of(fit) < 4.2


def test_training_in_a_loop_leaves_a_small_status() -> None:
    from kfp import dsl

    def trained(seeds: list[int]) -> CompiledPipeline:
        def pipeline():  # type: ignore[no-untyped-def]  # kfp reads annotations
            with dsl.ParallelFor(seeds) as seed:
                shipped.train(run_id="r", settings={"seed": seed}, trial="t")

        return CompiledPipeline((json_format.MessageToDict(dsl.pipeline(name="loop")(pipeline).pipeline_spec),))

    assert 45_000 < workflow_bytes(trained([1, 2])) - workflow_bytes(trained([1])) < 56_000


def test_tasks_of_a_pipeline_have_no_descriptions(pipelines: dict[str, CompiledPipeline]) -> None:
    for pipeline in pipelines.values():
        tasks = [component for component in pipeline.documents[0]["components"].values() if "dag" not in component]
        assert '"description"' not in json.dumps(tasks)


def test_descriptions_of_a_component_are_one_short_sentence() -> None:
    inputs = shipped.train.component_spec.inputs
    assert inputs["namespace"].description == "Namespace of the TrainJob"
    assert inputs["dataset_digest"].description == "Digest of the prepared dataset"
    assert inputs["secrets"].description == "Names of Secrets whose keys pods get as variables"
    assert max(len(one.description or "") for one in inputs.values()) <= 100


def test_input_given_as_its_default_is_not_passed_on() -> None:
    from kfp import dsl

    found: dict[str, Any] = {}

    @dsl.pipeline(name="defaults")
    def pipeline():  # type: ignore[no-untyped-def]  # kfp reads annotations
        task = shipped.train(
            run_id="r",
            num_nodes=0,
            settings={},
            limits={},
            ending={"tie_to_run": False},
            image="",
        )
        found.update(task._inputs)

    assert {name: value for name, value in found.items() if name != "task_settings"} == {
        "run_id": "r",
        "ending": {"tie_to_run": False},
    }
