"""The compiled pipeline: every setting of its steps, names for recurring runs, one Secret for each purpose, one claim."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from trainwright.steps.parameter_tables import STEP_PARAMETERS
from trainwright.steps.requests.forms import MOST_FIELDS

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


def test_each_step_gets_its_settings_from_the_first_one(compiled: Any) -> None:
    pipeline, _ = compiled
    assert len(parameters(pipeline)) <= MOST_FIELDS
    phases = {"train": "training", "initialize-dataset": "data", "export-checkpoint": "export", "evaluate": "evaluation"}
    for name, phase in {**phases, "promote-model": "promotion", "register-model": "registration"}.items():
        more = task(pipeline, name)["more"]
        if name in phases:
            assert more["taskOutputParameter"] == {"outputParameterKey": phase, "producerTask": "start-run"}
        else:  # inside of a condition
            assert parameter_of(more) == f"start-run-{phase}"
    for name in STEP_PARAMETERS["StartRun"]:
        if name in parameters(pipeline):
            assert parameter_of(task(pipeline, "start-run")[name]) == name


def test_data_and_base_model_have_edges_to_the_export_and_it_to_its_evaluation(compiled: Any) -> None:
    """They draw the lineage of a model on the page of the run."""
    producers = {"export-checkpoint": {"initialize-dataset", "initialize-model"}, "evaluate": {"export-checkpoint"}}
    for name, expected in producers.items():
        artifacts = steps(compiled[0])[name]["inputs"]["artifacts"].values()
        assert {given["taskOutputArtifact"]["producerTask"] for given in artifacts} == expected


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


def test_every_step_has_the_secrets_and_those_with_files_the_claim(compiled: Any) -> None:
    pipeline, platform = compiled
    executors = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    names = {name.removeprefix("exec-"): about for name, about in executors.items()}
    assert set(names) == set(steps(pipeline)) - {"start-run", "clean-up"}
    for name, about in names.items():
        secrets = {parameter_of(entry["secretNameParameter"]) for entry in about["secretAsEnv"]}
        assert secrets == {"store_secret", "hub_secret"}, name
        assert all(entry["optional"] for entry in about["secretAsEnv"]), name
        assert ("pvcMount" in about) is (name != "train"), name


def test_whatever_becomes_of_a_run_its_jobs_are_cleaned_up(compiled: Any) -> None:
    pipeline, _ = compiled
    root = pipeline["root"]["dag"]["tasks"]
    (group,) = set(root) - {"clean-up"}
    assert root["clean-up"]["triggerPolicy"]["strategy"] == "ALL_UPSTREAM_TASKS_COMPLETED"
    assert root["clean-up"]["dependentTasks"] == [group]
    given = task(pipeline, "clean-up")
    assert parameter_of(given["training"]) == "training"
