"""What holds for every shipped pipeline: jobs are cleaned up, nothing is cached, credentials and the claim come to the steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = pytest.mark.medium
NAMES = ["finetune", "full_pipeline", "retrain", "sweep"]
OF_JOBS = {"start-run", "clean-up"}
WITHOUT_FILES = {
    "finetune": OF_JOBS | {"train"},
    "full-pipeline": OF_JOBS,
    "retrain": OF_JOBS | {"train", "roll-back-model"},
    "sweep": OF_JOBS | {"train"},
}
OF_HUB = {"initialize-dataset", "initialize-model", "register-model"}


@pytest.fixture(scope="module", params=NAMES)
def compiled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, Any]]:
    """The pipeline and its platform spec."""
    from kfp import compiler

    from trainwright import pipelines

    assert sorted(pipelines.__all__) == NAMES
    target: Path = tmp_path_factory.mktemp("compiled") / "pipeline.yaml"
    compiler.Compiler().compile(getattr(pipelines, request.param), str(target))
    pipeline, platform = yaml.safe_load_all(target.read_text("utf-8"))
    return pipeline, platform


def steps(pipeline: dict[str, Any]) -> dict[str, Any]:
    """The tasks that run a program, at any depth."""
    components = pipeline["components"]
    dags = [pipeline["root"], *components.values()]
    tasks = {name: task for dag in dags for name, task in dag.get("dag", {}).get("tasks", {}).items()}
    return {name: task for name, task in tasks.items() if "dag" not in components[task["componentRef"]["name"]]}


def test_an_exit_handler_cleans_up(compiled: Any) -> None:
    root = compiled[0]["root"]["dag"]["tasks"]
    (group,) = set(root) - {"clean-up"}
    assert root["clean-up"]["triggerPolicy"]["strategy"] == "ALL_UPSTREAM_TASKS_COMPLETED"
    assert root["clean-up"]["dependentTasks"] == [group]


def test_no_step_is_taken_from_a_cache(compiled: Any) -> None:
    cached = {name for name, task in steps(compiled[0]).items() if task.get("cachingOptions", {}).get("enableCache")}
    assert cached == set()


def test_steps_have_the_credentials_of_what_they_read_and_those_with_files_the_claim(compiled: Any) -> None:
    pipeline, platform = compiled
    name = pipeline["pipelineInfo"]["name"]
    executors = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    found = {step.removeprefix("exec-"): about for step, about in executors.items()}
    without = OF_JOBS | {"preprocess-dataset", "plan-trials", "pick-trial"} | ({"train"} if name == "sweep" else set())
    for step in steps(pipeline):
        about = found.get(step, {})
        assert ("pvcMount" in about) is (step not in WITHOUT_FILES[name]), step
        entries = about.get("secretAsEnv", [])
        assert all(entry["optional"] for entry in entries), step
        variables = {
            entry["secretNameParameter"]["componentInputParameter"].removeprefix("pipelinechannel--"): {
                key["envVar"] for key in entry["keyToEnv"]
            }
            for entry in entries
        }
        if "store_secret" in variables:
            assert {"AWS_ACCESS_KEY_ID", "AZURE_CLIENT_SECRET", "GOOGLE_SERVICE_ACCOUNT_KEY"} <= variables["store_secret"], step
        assert ("store_secret" in variables) is (step not in without), step
        assert variables.get("hub_secret", set()) == ({"HF_TOKEN"} if step in OF_HUB else set()), step


def test_every_job_gets_the_run_that_the_clean_up_looks_for(compiled: Any) -> None:
    for name, task in steps(compiled[0]).items():
        if name in ("train", "evaluate", "evaluate-2"):
            given = task["inputs"]["parameters"]
            assert "start-run" in str(given["run"]), name
            assert "run_id" not in given, "it would take precedence over that of the run"
