"""The compiled pipeline: every setting of its steps, names for recurring runs, one Secret for each purpose, one claim."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from trainwright.jobs.request.train_request import TrainRequest

pytestmark = pytest.mark.medium
GIVEN_BY_THE_CHAIN = {"dataset_digest", "model_digest"}


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


def test_every_setting_of_a_training_step_is_a_parameter_and_reaches_it(compiled: Any) -> None:
    pipeline, _ = compiled
    expected = set(TrainRequest.model_fields) - GIVEN_BY_THE_CHAIN
    assert expected <= set(parameters(pipeline))
    for name in expected - {"workspace"}:
        assert parameter_of(task(pipeline, "train")[name]) == name


def test_only_data_store_and_workspace_must_be_given(compiled: Any) -> None:
    needed = {name for name, about in parameters(compiled[0]).items() if not about.get("isOptional")}
    assert needed == {"dataset_uri", "model_uri", "export_uri", "workspace"}


def test_a_run_without_a_name_is_named_after_the_pipelines_run(compiled: Any) -> None:
    pipeline, _ = compiled
    started = task(pipeline, "start-run")
    assert started["pipeline_run_id"] == {"runtimeValue": {"constant": "{{$.pipeline_job_uuid}}"}}
    for name in ("initialize-dataset", "initialize-model", "train", "export-checkpoint", "evaluate"):
        reference = task(pipeline, name)["run_id"]["taskOutputParameter"]
        assert reference == {"outputParameterKey": "run_id", "producerTask": "start-run"}


def test_evaluation_has_the_placement_of_the_training(compiled: Any) -> None:
    from trainwright.jobs.request.setting_names import EVALUATION_SETTINGS

    pipeline, _ = compiled
    given = task(pipeline, "evaluate")
    for name in EVALUATION_SETTINGS:
        other = {"image": "evaluation_image", "resources_per_node": "evaluation_resources"}.get(name, name)
        assert parameter_of(given[name]) == other


def test_every_step_has_the_secrets_and_those_with_files_the_claim(compiled: Any) -> None:
    pipeline, platform = compiled
    executors = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    names = {name.removeprefix("exec-"): about for name, about in executors.items()}
    assert set(names) == set(steps(pipeline)) - {"start-run", "clean-up"}
    for name, about in names.items():
        secrets = {parameter_of(entry["secretNameParameter"]) for entry in about["secretAsEnv"]}
        assert secrets == {"store_secret", "hub_secret"}, name
        assert all(entry["optional"] for entry in about["secretAsEnv"]), name
        assert ("pvcMount" in about) is (name not in ("train", "promote-model", "register-model")), name


def test_whatever_becomes_of_a_run_its_jobs_are_cleaned_up(compiled: Any) -> None:
    pipeline, _ = compiled
    root = pipeline["root"]["dag"]["tasks"]
    (group,) = set(root) - {"clean-up"}
    assert root["clean-up"]["triggerPolicy"]["strategy"] == "ALL_UPSTREAM_TASKS_COMPLETED"
    assert root["clean-up"]["dependentTasks"] == [group]
    given = task(pipeline, "clean-up")
    assert {name: parameter_of(given[name]) for name in ("run_id", "on_failure")} == {
        "run_id": "run_id",
        "on_failure": "on_cancel",
    }
