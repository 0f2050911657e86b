"""The compiled pipeline: every setting of its steps, names for recurring runs, one Secret for each purpose, one claim."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from trainwright.jobs.request.setting import names_of
from trainwright.steps.requests import FineTuning, StartRun

pytestmark = pytest.mark.medium


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, Any]]:
    """The pipeline and its platform spec."""
    from kfp import compiler

    from trainwright.pipelines import finetune

    target = tmp_path_factory.mktemp("compiled") / "finetune.yaml"
    compiler.Compiler().compile(finetune, str(target))
    pipeline, platform = yaml.safe_load_all(target.read_text("utf-8"))
    return pipeline, platform


def parameters(pipeline: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = pipeline["root"]["inputDefinitions"]["parameters"]
    return found


def steps(pipeline: dict[str, Any]) -> dict[str, Any]:
    """The tasks that run a program, at any depth: those of an exit handler and of conditions are in components of their own."""
    components = pipeline["components"]
    dags = [pipeline["root"], *components.values()]
    tasks = {name: task for dag in dags for name, task in dag.get("dag", {}).get("tasks", {}).items()}
    return {name: task for name, task in tasks.items() if "dag" not in components[task["componentRef"]["name"]]}


def task(pipeline: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = steps(pipeline)[name]["inputs"]["parameters"]
    return found


def parameter_of(reference: dict[str, Any]) -> str:
    """The parameter of the pipeline that reaches a task, through the components around it."""
    return str(reference["componentInputParameter"]).removeprefix("pipelinechannel--")


def test_first_step_gets_all_settings(compiled: Any) -> None:
    pipeline, _ = compiled
    for name in names_of(StartRun) & parameters(pipeline).keys():
        assert parameter_of(task(pipeline, "start-run")[name]) == name
    assert parameters(pipeline).keys() == names_of(FineTuning) | {"store_secret", "hub_secret"}


def test_only_data_store_and_workspace_must_be_given(compiled: Any) -> None:
    needed = {name for name, about in parameters(compiled[0]).items() if not about.get("isOptional")}
    assert needed == {"dataset_uri", "model_uri", "export_uri", "workspace"}


def test_a_run_without_a_name_is_named_after_the_pipelines_run(compiled: Any) -> None:
    pipeline, _ = compiled
    started = task(pipeline, "start-run")
    assert started["pipeline_run_id"] == {"runtimeValue": {"constant": "{{$.pipeline_job_uuid}}"}}


def test_whatever_becomes_of_a_run_its_jobs_are_cleaned_up(compiled: Any) -> None:
    pipeline, _ = compiled
    root = pipeline["root"]["dag"]["tasks"]
    (group,) = set(root) - {"clean-up"}
    assert root["clean-up"]["triggerPolicy"]["strategy"] == "ALL_UPSTREAM_TASKS_COMPLETED"
    assert root["clean-up"]["dependentTasks"] == [group]
    given = task(pipeline, "clean-up")
    assert parameter_of(given["training"]) == "training"
