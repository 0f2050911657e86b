"""What holds for every shipped pipeline: jobs are cleaned up, nothing is cached, credentials and the claim come to the steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = pytest.mark.medium
NAMES = ["finetune", "full_pipeline", "retrain", "sweep"]
WITHOUT_FILES = {"train", "promote-model", "promote-model-2", "register-model", "read-champion", "roll-back-model"}
OF_JOBS = {"start-run", "clean-up"}


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


def test_every_step_has_the_secrets_and_those_with_files_the_claim(compiled: Any) -> None:
    pipeline, platform = compiled
    executors = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    found = {name.removeprefix("exec-"): about for name, about in executors.items()}
    assert set(found) == set(steps(pipeline)) - OF_JOBS
    for name, about in found.items():
        parameters = {entry["secretNameParameter"]["componentInputParameter"] for entry in about["secretAsEnv"]}
        secrets = {parameter.removeprefix("pipelinechannel--") for parameter in parameters}
        assert {"store_secret", "hub_secret"} <= secrets, name
        assert all(entry["optional"] for entry in about["secretAsEnv"]), name
        assert ("pvcMount" in about) or name in WITHOUT_FILES, name
        variables = {key["envVar"] for entry in about["secretAsEnv"] for key in entry["keyToEnv"]}
        assert {"AWS_ACCESS_KEY_ID", "AZURE_CLIENT_SECRET", "GOOGLE_SERVICE_ACCOUNT_KEY", "HF_TOKEN"} <= variables, name


def test_every_job_gets_the_run_that_the_clean_up_looks_for(compiled: Any) -> None:
    for name, task in steps(compiled[0]).items():
        if name in ("train", "evaluate", "evaluate-2"):
            source = task["inputs"]["parameters"]["run_id"]
            text = str(source)
            assert "start-run" in text, name
