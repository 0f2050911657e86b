"""The DAG `trainwright_sweep` in a real Airflow on an embedded cluster: a small program reports a loss as transformers does."""

from __future__ import annotations

from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from servers.airflow_server import AirflowServer, running_airflow
from support.fast_training_cluster import learned, running, script
from support.on_first_use import OnFirstUse
from support.optional_packages import require_packages
from support.waiting import eventually

from trainwright.api.kinds import TRAINJOB
from trainwright.checkpoints.restore import restore_checkpoint
from trainwright.storage.uri import StorageUri
from trainwright.submission.suspension import early_stop_reason

sweep = OnFirstUse("trainwright.example_dags.sweep")
require_packages("airflow")

pytestmark = [pytest.mark.slow, pytest.mark.wide(part="airflow"), pytest.mark.timeout(400)]
TRIALS = [{"learning_rate": 1.0}, {"learning_rate": 2.5}, {"learning_rate": 3.0, "lora_rank": 13}, {"learning_rate": 9.0}]


def ended(airflow: AirflowServer, run: str) -> str:
    state = airflow.run_state(sweep.dag.dag_id, run)
    return state if state in ("success", "failed") else ""


def most_at_once(tasks: list[dict[str, Any]]) -> int:
    """How many of these tasks ran at the same time."""
    spans = [(datetime.fromisoformat(task["start_date"]), datetime.fromisoformat(task["end_date"])) for task in tasks]
    return max(sum(start <= moment < end for start, end in spans) for moment, _ in spans)


def test_the_best_trial_is_exported_and_a_hopeless_one_is_stopped_and_skipped(tmp_path: Path) -> None:
    with running(tmp_path) as runs:
        runs.claim("w")
        conf = {
            **runs.inputs("base").uris,
            "export_uri": str(StorageUri.from_path(tmp_path / "exports")),
            "workspace": "pvc://w",
            "evaluation": {"runtime": "fast-evaluation"},
            "data": {"test_fraction": 0.3},
            "training": {"run_id": "first", "runtime": "fast", "env": script(fails_with={"lora_r": "13"}, hangs_above=5)},
            "trials": TRIALS,
            "early_stop": {"min_trials": 2, "start_step": 1},
        }
        environ = {"KUBECONFIG": str(tmp_path / "home/kubeconfig"), "TRAINWRIGHT_PARALLELISM": "2"}
        with running_airflow(tmp_path / "airflow", Path(sweep.__file__).parent, environ) as airflow:
            eventually(lambda: airflow.knows(sweep.dag.dag_id), 60, "the DAG")
            body = {"dag_run_id": "one", "logical_date": None, "conf": conf}
            airflow.call("POST", f"dags/{sweep.dag.dag_id}/dagRuns", body)
            state = eventually(lambda: ended(airflow, "one"), 240, "the end of the sweep")
            tasks = airflow.tasks(sweep.dag.dag_id, "one")
            states = {task["task_id"]: task["state"] for task in tasks if task["task_id"] != "train"}
            trials = sorted((task for task in tasks if task["task_id"] == "train"), key=lambda task: task["map_index"])
            assert state == "success", f"{states}\n{airflow.log(sweep.dag.dag_id, 'one', task='pick-trial')[-4000:]}"
            assert [task["state"] for task in trials] == ["success", "success", "failed", "skipped"]
            assert most_at_once(trials) == 2
            assert states.pop("promote") == "skipped"
            assert set(states.values()) == {"success"}
            entries = f"dags/{sweep.dag.dag_id}/dagRuns/one/taskInstances"
            best = airflow.call("GET", f"{entries}/pick-trial/xcomEntries/return_value?deserialize=true")["value"]
            exported = airflow.call("GET", f"{entries}/export-checkpoint/xcomEntries/return_value?deserialize=true")["value"]
        stopped = [reason for job in runs.cluster.list(TRAINJOB, "default").items if (reason := early_stop_reason(job))]
    assert len(stopped) == 1
    assert "its best eval_loss after 1 reports is 6, worse than 1.25, the median of the averages of 2 other trials" in stopped[0]
    assert (best["index"], best["value"]) == (1, 0.5)
    assert "was stopped early" in best["summary"]
    assert "failed\\: pod " in best["summary"]
    restore_checkpoint(exported["uri"], tmp_path / "restored", digest=exported["digest"])
    assert dict(pairwise(learned(tmp_path / "restored")["arguments"]))["--learning_rate"] == "2.5"
