"""What holds for every shipped pipeline: jobs are cleaned up, nothing is cached, credentials and the claim come to the steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from trainwright.steps.chain import FINETUNING, FULL, RETRAINING, SWEEP

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
TABLES = {"finetune": FINETUNING, "full-pipeline": FULL, "retrain": RETRAINING, "sweep": SWEEP}
SECOND = {"evaluate-champion": "evaluate-2", "promote-over-champion": "promote-model-2"}
"""kfp numbers the tasks of a component."""
LEFT_OUT = {"retrain": {"register-model"}, "sweep": {"register-model"}}


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


def groups(pipeline: dict[str, Any]) -> list[dict[str, Any]]:
    """The tasks of each group, and of the pipeline."""
    return [one["dag"]["tasks"] for one in (pipeline["root"], *pipeline["components"].values()) if "dag" in one]


def steps(pipeline: dict[str, Any]) -> dict[str, Any]:
    """The tasks that run a program, at any depth."""
    components = pipeline["components"]
    tasks = {name: task for group in groups(pipeline) for name, task in group.items()}
    return {name: task for name, task in tasks.items() if "dag" not in components[task["componentRef"]["name"]]}


def source(given: dict[str, Any]) -> str:
    """`FIELD` or `TASK-OUTPUT` that a task gets, also through the groups around it; empty for a constant."""
    for kind in ("Parameter", "Artifact"):
        if (outer := given.get(f"componentInput{kind}")) is not None:
            return str(outer).removeprefix("pipelinechannel--").removesuffix("-loop-item")
        if (produced := given.get(f"taskOutput{kind}")) is not None:
            return f"{produced['producerTask']}-{produced[f'output{kind}Key']}".rpartition("pipelinechannel--")[2]
    return ""


def test_inputs_of_each_step_are_those_of_the_table(compiled: Any) -> None:
    """Those of artifacts draw the lineage of a model on the page of the run."""
    pipeline = compiled[0]
    name, tasks = pipeline["pipelineInfo"]["name"], steps(pipeline)
    table = {step: row for step, row in TABLES[name].items() if step not in LEFT_OUT.get(name, ())}
    assert {SECOND.get(step, step) for step in table} == tasks.keys() - {"start-run", "clean-up", "roll-back-model"}
    for step, row in table.items():
        inputs = tasks[SECOND.get(step, step)]["inputs"]
        given = {**inputs["parameters"], **inputs.get("artifacts", {})}
        found = {key: source(one) for key, one in given.items() if not key.startswith("pipelinechannel--")}
        assert found.pop("run") == "start-run-run"
        assert "run_id" not in given, "it would take precedence over that of the run"
        expected = {}
        for key, wanted in row.of_pipeline.items():
            producer, _, output = wanted.rpartition(".")
            expected[key] = f"{SECOND.get(producer, producer)}-{output}" if producer else output
        assert {key: value for key, value in found.items() if value} == expected, step
        if row.after:
            (around,) = (one for one, about in pipeline["components"].items() if step in about.get("dag", {}).get("tasks", {}))
            (group,) = (tasks for tasks in groups(pipeline) if around.removeprefix("comp-") in tasks)
            assert row.after in group[around.removeprefix("comp-")]["dependentTasks"]


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
