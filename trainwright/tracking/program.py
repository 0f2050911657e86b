"""`python program.py TOOL`: writes to one tracking tool what it reads from standard input, a JSON object a line.

It runs in the environment of the tool, so it imports nothing of Trainwright. First comes the run, then its metrics, last its end. It
leaves SIGTERM and Ctrl-C to the process that feeds it: the end of its input ends it.
"""

import contextlib
import fcntl
import json
import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

KILLED = "KILLED"
SQLITE = "sqlite:///"


def say(text: str) -> None:
    """Write a line for the step's log; what the tools write besides is shown only if they fail."""
    print(f"> {text}", flush=True)


class Mlflow:
    """A run of MLflow. One of the same step that has not finished is continued."""

    def __init__(self, run: dict[str, Any]):
        import mlflow
        from mlflow import MlflowClient

        experiment = os.environ.get("MLFLOW_EXPERIMENT_NAME") or run["project"]
        with one_at_a_time(run["address"]):
            mlflow.set_tracking_uri(run["address"])
            self.client = MlflowClient()
            found = self.client.get_experiment_by_name(experiment)
            experiment_id = found.experiment_id if found else self._created(experiment)
        self.id = self._of_step(experiment_id, run)
        for name, value in run["parameters"].items():
            self._set_parameter(name, value)
        say(f"run {self.id} of the experiment {experiment} at {run['address']}")

    def _created(self, experiment: str) -> str:
        try:
            return str(self.client.create_experiment(experiment))
        except Exception:  # another step has created it at the same time
            return str(self.client.get_experiment_by_name(experiment).experiment_id)

    def _of_step(self, experiment_id: str, run: dict[str, Any]) -> str:
        tag = run["step"].replace("'", "_")
        same = self.client.search_runs([experiment_id], f"tags.`trainwright.step` = '{tag}'", max_results=1)
        if same and same[0].info.status != "FINISHED":
            self.client.update_run(same[0].info.run_id, status="RUNNING")
            return str(same[0].info.run_id)
        tags = {**run["tags"], "trainwright.step": tag}
        return str(self.client.create_run(experiment_id, run_name=run["name"], tags=tags).info.run_id)

    def _set_parameter(self, name: str, value: Any) -> None:
        try:
            self.client.log_param(self.id, name, str(value)[:6000])
        except Exception as error:  # a run that is continued keeps its parameters
            say(f"parameter {name} was not set: {str(error).splitlines()[0]}")

    def log(self, metrics: dict[str, float], step: int, seconds: float) -> None:
        from mlflow.entities import Metric

        entities = [Metric(name, value, int(seconds * 1000), step) for name, value in metrics.items()]
        self.client.log_batch(self.id, metrics=entities)

    def end(self, status: str) -> None:
        self.client.set_terminated(self.id, status=status)


class Wandb:
    """A run of Weights & Biases: offline unless there is a key, or a mode is set."""

    def __init__(self, run: dict[str, Any]):
        os.environ.setdefault("WANDB_MODE", "online" if os.environ.get("WANDB_API_KEY") else "offline")
        os.environ.setdefault("WANDB_SILENT", "true")
        import wandb

        entity, _, project = run["address"].rpartition("/")
        folder = run["folder"] or os.getcwd()
        os.makedirs(folder, exist_ok=True)
        self.run = wandb.init(
            entity=entity or None,
            project=project,
            id=run["id"],
            name=run["name"],
            group=run["tags"].get("trainwright.run"),
            config={**run["parameters"], **run["tags"]},
            dir=folder,
            resume="allow" if os.environ["WANDB_MODE"] == "online" else None,
            settings=wandb.Settings(disable_git=True, x_disable_stats=True, console="off", save_code=False),
        )
        for name in ("step", "epoch"):
            self.run.define_metric(name)
        self.run.define_metric("*", step_metric="step")
        say(f"run {run['id']} of the project {run['address']}, {os.environ['WANDB_MODE']}, in {self.run.dir}")

    def log(self, metrics: dict[str, float], step: int, seconds: float) -> None:
        self.run.log({**metrics, "step": step, "_timestamp": seconds})

    def end(self, status: str) -> None:
        self.run.finish(exit_code=0 if status == "FINISHED" else 1)


class Tensorboard:
    """Event files in a folder for each run."""

    def __init__(self, run: dict[str, Any]):
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        folder = os.path.join(run["address"], run["name"])
        os.makedirs(folder, exist_ok=True)
        self.writer = EventFileWriter(folder, flush_secs=5)
        say(f"events in {folder}")

    def log(self, metrics: dict[str, float], step: int, seconds: float) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        values = [Summary.Value(tag=name, simple_value=value) for name, value in metrics.items()]
        self.writer.add_event(Event(wall_time=seconds, step=step, summary=Summary(value=values)))

    def end(self, status: str) -> None:
        self.writer.close()


@contextlib.contextmanager
def one_at_a_time(address: str) -> Iterator[None]:
    """Keep other steps from a file of SQLite while its tables are created, which MLflow does at the first contact."""
    if not address.startswith(SQLITE):
        yield
        return
    path = address.removeprefix(SQLITE)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(f"{path}.lock", "a", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


TOOLS: dict[str, Any] = {"mlflow": Mlflow, "wandb": Wandb, "tensorboard": Tensorboard}


def main(tool: str) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    lines = (json.loads(line) for line in sys.stdin)
    run = next(lines, None)
    if run is None:
        return
    tracker, status = TOOLS[tool](run), KILLED
    for line in lines:
        if "end" in line:
            status = line["end"]
            break
        try:
            tracker.log(line["metrics"], line["step"], line["seconds"])
        except Exception as error:  # a server that is away for a while loses these values, not the run
            say(f"step {line['step']} was not written: {type(error).__name__}: {error}")
    tracker.end(status)


if __name__ == "__main__":
    main(sys.argv[1])
