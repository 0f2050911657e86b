"""The pipeline `full_pipeline`, run on this machine, and the DAG, run by `dag.test()`, with all their real tools.

These are DVC, Ray Data, TRL, trackers, lm-evaluation-harness and MLflow.
"""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.fast_training_cluster import Runs, running
from support.local_pipeline import run_here
from support.optional_packages import require_packages

from trainwright.checkpoints.promotion import Alias
from trainwright.evaluation.harness import REQUIREMENTS as LM_EVAL
from trainwright.quickstart.airflow_dag import configure
from trainwright.storage.uri import StorageUri
from trainwright.tools.dvc_data import dvc_requirements
from trainwright.tools.environment import tool_environment
from trainwright.tools.errors import ToolUnavailable
from trainwright.tools.ray_preprocess import ray_requirements
from trainwright.tracking.targets import REQUIREMENTS as TRACKING

require_packages("trl")

pytestmark = [pytest.mark.slow, pytest.mark.wide(part="data-tools"), pytest.mark.timeout(900)]
TRANSFORM = """
def transform(row):
    return {"prompt": row["question"] + "\\n", "completion": row["answer"]} if row["answer"] else None
"""


def run_pipeline(runs: Runs, name: str, root: str, parameters: dict[str, Any]) -> tuple[bool, str]:
    """Run a shipped pipeline; returns whether it succeeded, and what it printed."""
    ended, printed = run_here(name, parameters, runs.folder / root, runs.folder / "home/kubeconfig")
    return ended.state == "SUCCEEDED", printed


def run_dag(runs: Runs, name: str, root: str, parameters: dict[str, Any]) -> tuple[bool, str]:
    """As `run_pipeline`, for a shipped DAG."""
    pytest.importorskip("airflow.sdk")
    environ = {**os.environ, **configure(runs.folder / root), "KUBECONFIG": str(runs.folder / "home/kubeconfig")}
    command = [sys.executable, "-m", "trainwright.quickstart.airflow_dag", name, json.dumps(parameters)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environ)
    return done.returncode == 0, f"{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("run", [run_pipeline, run_dag])
def test_the_whole_chain_from_versioned_data_to_a_registered_model(
    tmp_path: Path, tiny_model: Path, run: Callable[..., tuple[bool, str]]
) -> None:
    try:
        for name, requirements in {**TRACKING, "dvc": dvc_requirements(), "ray": ray_requirements()}.items():
            tool_environment(requirements, name=name)
        tool_environment(LM_EVAL, name="lm-eval", system_packages=True)
    except ToolUnavailable as error:
        pytest.skip(f"no environments of the tools: {error}")
    rows = [{"question": f"What is ship {number % 40}?", "answer": f"Ship {number % 40}."} for number in range(60)]
    rows.append({"question": "And this one?", "answer": ""})
    source = tmp_path / "rows.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    export_uri = str(StorageUri.from_path(tmp_path / "exports"))
    (tmp_path / "cluster").mkdir()
    with running(tmp_path / "cluster") as runs:
        workspace = runs.claim("w")
        given = {
            "source": str(StorageUri.from_path(source)),
            "model_uri": str(StorageUri.from_path(tiny_model)),
            "export_uri": export_uri,
            "workspace": "pvc://w",
            "method": "full",
            "training": {
                "run_id": "chain",
                "workspace_path": str(workspace),
                "settings": {"steps": 6, "logging_steps": 2, "save_steps": 6, "cpu": True},
                "env": {"TRAINWRIGHT_TOOLS": os.environ["TRAINWRIGHT_TOOLS"]},
            },
            "data": {"transform": TRANSFORM, "test_fraction": 0.2},
            "evaluation": {"harness": {"task_limit": 2}},
        }
        has_succeeded, printed = run(runs, "full_pipeline", "root", given)
        assert has_succeeded, printed[-8000:]
    champion = Alias(export_uri).read()
    assert champion is not None
    assert "held_out/exact_match" in champion.current.evaluation
    (dataset,) = workspace.glob("datasets/*/train.jsonl")
    held_out = dataset.with_name("test.jsonl")
    assert len(dataset.read_text().splitlines()) + len(held_out.read_text().splitlines()) == 40, "duplicates and blanks are gone"
    record = json.loads((workspace / "runs/chain/run.json").read_text())
    assert record["inputs"]["dvc"]["md5"]
    with sqlite3.connect(workspace / "tracking/mlflow.db") as database:
        losses = database.execute("select value from metrics where key = 'loss'").fetchall()
        versions = database.execute("select name, source from model_versions").fetchall()
        statuses = database.execute("select status from runs").fetchall()
    assert losses
    assert versions == [("trainwright", champion.current.uri)]
    assert statuses == [("FINISHED",)]
    assert list(workspace.glob("tracking/tensorboard/*/events.out.tfevents.*"))
    assert list(workspace.glob("tracking/wandb/wandb/offline-run-*/run-*.wandb"))
