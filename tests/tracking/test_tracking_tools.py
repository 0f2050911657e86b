"""Metrics of a job reach the real tools while it runs, and are read back with the tools themselves."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.waiting import eventually

from trainwright.jobs.diagnosis.errors import Cancelled
from trainwright.jobs.wait.job_events import Logged, Metrics
from trainwright.tools.environment import tool_environment
from trainwright.tools.errors import ToolUnavailable
from trainwright.tracking import TrackedRun, parse_targets, tracking
from trainwright.tracking.targets import REQUIREMENTS

pytestmark = [pytest.mark.slow, pytest.mark.wide(part="registries"), pytest.mark.timeout(600)]
RUN = TrackedRun("my-run-1234", "kfp/my-run/train", "0123456789abcdef", {"learning_rate": 0.1}, {"trainwright.run": "my-run"})
READ_MLFLOW = """
import json, sys
import mlflow
from mlflow import MlflowClient
mlflow.set_tracking_uri(sys.argv[1])
client = MlflowClient()
experiment = client.get_experiment_by_name("trainwright")
found = []
for run in client.search_runs([experiment.experiment_id] if experiment else []):
    history = {name: [(one.step, one.value) for one in client.get_metric_history(run.info.run_id, name)] for name in run.data.metrics}
    found.append({"status": run.info.status, "name": run.info.run_name, "metrics": history, "params": run.data.params})
print(json.dumps(found))
"""
READ_TENSORBOARD = """
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator(sys.argv[1])
events.Reload()
print(json.dumps({name: [(one.step, one.value) for one in events.Scalars(name)] for name in events.Tags()["scalars"]}))
"""


@pytest.fixture(scope="session")
def python() -> Callable[[str], Path]:
    def environment(tool: str) -> Path:
        try:
            return tool_environment(REQUIREMENTS[tool], name=tool)
        except ToolUnavailable as error:
            pytest.skip(f"no environment of {tool}: {error}")

    return environment


def read(python: Path, program: str, *arguments: str) -> Any:
    done = subprocess.run([python, "-c", program, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def metrics(**values: str) -> tuple[Metrics]:
    return (Metrics(tuple(values.items())),)


def test_mlflow_gets_them_live_and_continues_an_interrupted_run(python: Callable[[str], Path], tmp_path: Path) -> None:
    mlflow = python("mlflow")
    targets = parse_targets(["mlflow"], {}, tmp_path)
    address, said = targets[0].address, list[str]()

    def runs() -> Any:
        return read(mlflow, READ_MLFLOW, address)

    def interrupted() -> None:
        with tracking(RUN, targets, write=said.append) as observe:
            observe.begin("uid-1")
            observe(metrics(loss="2.5", epoch="0.5", step="10", note="x"))
            eventually(lambda: said, seconds=60)
            eventually(lambda: runs() and runs()[0]["metrics"].get("loss") == [[10, 2.5]], seconds=60)
            raise Cancelled("by the user")

    with pytest.raises(Cancelled):
        interrupted()
    (killed,) = runs()
    assert killed["status"] == "KILLED"
    with tracking(RUN, targets, write=said.append) as observe:
        observe.begin("uid-1")
        observe(metrics(loss="1.5", epoch="0.5", step="20"))
        observe(metrics(loss="nan", epoch="0.5", step="30"))
        observe((Logged(tuple({"loss": value, "step": step} for step, value in ((5, 3.0), (10, 2.5), (20, 1.5), (40, 0.5)))),))
    (run,) = runs()
    assert run["status"] == "FINISHED"
    assert run["name"] == "my-run-1234"
    assert run["params"] == {"learning_rate": "0.1"}
    assert sorted(run["metrics"]["loss"]) == [[5, 3.0], [10, 2.5], [20, 1.5], [40, 0.5]]
    assert said[0].startswith("tracking: mlflow: run ")
    with tracking(RUN, targets, write=said.append) as observe:
        observe.begin("uid-2")
        observe(metrics(loss="9", step="10"))
    other, same = runs()
    assert (other["name"], other["metrics"]["loss"], same) == (run["name"], [[10, 9.0]], run)


def test_tensorboard_and_wandb_write_files(python: Callable[[str], Path], tmp_path: Path) -> None:
    tensorboard, _ = python("tensorboard"), python("wandb")
    said: list[str] = []
    with tracking(RUN, parse_targets(["tensorboard", "wandb"], {}, tmp_path), folder=tmp_path, write=said.append) as observe:
        observe.begin("uid-1")
        for step in range(1, 6):
            observe(metrics(loss=str(1 / step), step=str(step)))
    scalars = read(tensorboard, READ_TENSORBOARD, str(tmp_path / "tensorboard/my-run-1234"))
    assert [step for step, _ in scalars["loss"]] == [1, 2, 3, 4, 5]
    for uid in ("uid-1", "uid-2"):
        with tracking(RUN, parse_targets(["tensorboard"], {}, tmp_path), folder=tmp_path) as observe:
            observe.begin(uid)
            observe(metrics(loss="7", step="6"))
    folders = (tmp_path / "tensorboard" / name for name in ("my-run-1234", "my-run-1234-2"))
    same, other = (read(tensorboard, READ_TENSORBOARD, str(folder)) for folder in folders)
    assert [step for step, _ in same["loss"]] == [1, 2, 3, 4, 5, 6]
    assert other["loss"] == [[6, 7.0]]
    assert list(tmp_path.glob("wandb/wandb/offline-run-*/run-*.wandb")), said
    assert any("offline" in line for line in said)


def test_a_server_that_is_not_there_does_not_touch_the_training(
    python: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    python("mlflow")
    for name, value in (("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0"), ("MLFLOW_HTTP_REQUEST_TIMEOUT", "2")):
        monkeypatch.setenv(name, value)
    said: list[str] = []
    with tracking(RUN, parse_targets(["mlflow:http://127.0.0.1:9"], {}), write=said.append) as observe:
        observe(metrics(loss="1"))
    assert any("ended with exit code 1" in line and "127.0.0.1" in line for line in said), said
