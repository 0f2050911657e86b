"""`python program.py TOOL`: writes to one tracking tool what it reads from standard input, a JSON object a line.

It runs in the environment of the tool, so it imports nothing of Trainwright. First comes the run, then its metrics, last its end. It
leaves SIGTERM and Ctrl-C to the process that feeds it: the end of its input ends it.
"""

import contextlib
import fcntl
import itertools
import json
import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

KILLED = "KILLED"
JOB_TAG, JOB_FILE = "trainwright.trainjob_uid", ".trainjob-uid"
MOST_METRICS = 1000  # of one request to MLflow
SQLITE = "sqlite:///"


def say(text: str) -> None:
    """Write a line for the step's log; what the tools write besides is shown only if they fail."""
    print(f"> {text}", flush=True)


class Mlflow:
    """A run of MLflow. That of the same TrainJob is continued; one of another training is left alone, whatever its name."""

    def __init__(self, run: dict[str, Any]):
        import mlflow
        from mlflow import MlflowClient

        experiment = os.environ.get("MLFLOW_EXPERIMENT_NAME") or run["project"]
        with one_at_a_time(run["address"]):
            mlflow.set_tracking_uri(run["address"])
            self.client = MlflowClient()
            found = self.client.get_experiment_by_name(experiment)
            experiment_id = found.experiment_id if found else self._created(experiment)
        self.known: dict[str, set[int]] = {}
        self.id = self._of_job(experiment_id, run)
        for name, value in run["parameters"].items():
            try:
                self.client.log_param(self.id, name, str(value)[:6000])
            except Exception as error:  # a run that is continued keeps its parameters
                say(f"parameter {name} was not set: {str(error).splitlines()[0]}")
        say(f"run {self.id} of the experiment {experiment} at {run['address']}")

    def _created(self, experiment: str) -> str:
        try:
            return str(self.client.create_experiment(experiment))
        except Exception:  # another step has created it at the same time
            return str(self.client.get_experiment_by_name(experiment).experiment_id)

    def _of_job(self, experiment_id: str, run: dict[str, Any]) -> str:
        tags = {**run["tags"], "trainwright.step": run["step"], JOB_TAG: run["job"]}
        same = self.client.search_runs([experiment_id], f"tags.`{JOB_TAG}` = '{run['job']}'", max_results=1) if run["job"] else []
        if not same:
            return str(self.client.create_run(experiment_id, run_name=run["name"], tags=tags).info.run_id)
        found = str(same[0].info.run_id)
        self.client.update_run(found, status="RUNNING")
        self.known = {name: {one.step for one in self.client.get_metric_history(found, name)} for name in same[0].data.metrics}
        return found

    def job(self, uid: str) -> None:
        self.client.set_tag(self.id, JOB_TAG, uid)

    def log(self, points: list[Any], seconds: float) -> None:
        from mlflow.entities import Metric

        entities = [
            Metric(name, value, int(seconds * 1000), step)
            for step, metrics in points
            for name, value in metrics.items()
            if step not in self.known.get(name, ())
        ]
        for at in range(0, len(entities), MOST_METRICS):
            self.client.log_batch(self.id, metrics=entities[at : at + MOST_METRICS])

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

    def job(self, uid: str) -> None:
        self.run.config.update({JOB_TAG: uid}, allow_val_change=True)

    def log(self, points: list[Any], seconds: float) -> None:
        for step, metrics in points:
            self.run.log({**metrics, "step": step, "_timestamp": seconds})

    def end(self, status: str) -> None:
        self.run.finish(exit_code=0 if status == "FINISHED" else 1)


class Tensorboard:
    """Event files in a folder for each run. The folder of another training is left alone, whatever its name."""

    def __init__(self, run: dict[str, Any]):
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        folder = self.folder = folder_of(os.path.join(run["address"], run["name"]), run["job"])
        self.job(run["job"])
        self.writer = EventFileWriter(folder, flush_secs=5)
        say(f"events in {folder}")

    def job(self, uid: str) -> None:
        with open(os.path.join(self.folder, JOB_FILE), "w", encoding="utf-8") as file:
            file.write(uid)

    def log(self, points: list[Any], seconds: float) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        for step, metrics in points:
            values = [Summary.Value(tag=name, simple_value=value) for name, value in metrics.items()]
            self.writer.add_event(Event(wall_time=seconds, step=step, summary=Summary(value=values)))

    def end(self, status: str) -> None:
        self.writer.close()


def folder_of(name: str, job: str) -> str:
    """Return the folder of the job's events: the first of this name, with a number if need be, that is its own or new."""
    for number in itertools.count(1):
        folder = name if number == 1 else f"{name}-{number}"
        try:
            os.makedirs(folder)
            return folder
        except FileExistsError:
            with contextlib.suppress(OSError), open(os.path.join(folder, JOB_FILE), encoding="utf-8") as file:
                if job and file.read() == job:
                    return folder
    raise AssertionError("unreachable")


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
    if run is None or "end" in run:  # no job was submitted
        return
    tracker, status = TOOLS[tool](run), KILLED
    for line in lines:
        if "end" in line:
            status = line["end"]
            break
        try:
            if "job" in line:
                tracker.job(line["job"])
            else:
                tracker.log(line["points"], line["seconds"])
        except Exception as error:  # a server that is away for a while loses these values, not the run
            what = f"step {line['points'][0][0]}" if "points" in line else "the next job"
            say(f"{what} was not written: {type(error).__name__}: {error}")
    tracker.end(status)


if __name__ == "__main__":
    main(sys.argv[1])
