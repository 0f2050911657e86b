"""Replays recorded TrainJobs against what users call: `python -m tests.replay FOLDER...` prints exit code and text of each.

A FOLDER is one of `failures/cases`. The job is submitted and awaited as by `trainwright submit -f ... --wait --start-timeout 30
--queue-timeout 30`, with `--by component` as a pipeline's step, with `--by operator` or `--by trigger` as an Airflow task that waits
in its worker or in the triggerer. No time passes.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import yaml

sys.path.insert(0, str(Path(__file__).parent))

from factories import task_context
from recorders.recorded_cluster import RecordedCluster, Recording
from support.virtual_time import VirtualClock, run_on_clock

from trainwright.api.objects import name_of
from trainwright.jobs.request.setting import in_groups
from trainwright.jobs.request.train_request import TrainRequest
from trainwright.submission.jobs_client import JobsClient

LIMITS = {"start_timeout_seconds": 30, "queue_timeout_seconds": 30}


class _Timed(io.TextIOBase):
    """Text with the time of each line."""

    def __init__(self, clock: VirtualClock):
        self._clock, self._partial = clock, ""
        self.lines: list[tuple[float, str]] = []

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        *complete, self._partial = (self._partial + text).split("\n")
        self.lines += [(self._clock.now, line) for line in complete]
        return len(text)

    def end(self) -> None:
        if self._partial:
            self.write("\n")


@dataclass
class Replayed:
    """What a user was told: `lines` with their seconds since the begin of the recording."""

    exit_code: int
    seconds: float
    lines: list[tuple[float, str]]
    told: dict[str, Any]
    requests: list[tuple[float, str]] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "\n".join(line for _, line in self.lines)

    def said_at(self, pattern: str) -> float | None:
        """When a regular expression was first found in what was said; None if never."""
        return next((at for at, line in self.lines if re.search(pattern, line, re.IGNORECASE)), None)

    @property
    def problems(self) -> list[str]:
        """What was not told as it must be."""
        expected = self.told["exitCode"]
        found = [] if self.exit_code == expected else [f"exit code {self.exit_code}, must be {expected}"]
        missing = [pattern for pattern in self.told["contains"] if not re.search(pattern, self.text, re.IGNORECASE)]
        return found + [f"not said: {pattern}" for pattern in missing]


def replay(folder: Path, by: str = "cli", **options: Any) -> Replayed:
    """Replay one recording; `options` are parameters of the component, or long options of the command line."""
    recording = Recording(folder)
    clock = VirtualClock(recording.epoch(), limit=recording.last + 7200)
    cluster = RecordedCluster(recording, clock)
    client = JobsClient(cluster, default_namespace="train")
    out = _Timed(clock)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out), clock.installed():
        code = {"cli": _by_cli, "component": _by_component, "operator": _by_operator, "trigger": _by_trigger}[by](
            recording, client, options
        )
        out.end()
        seconds = clock.now
    return Replayed(code, seconds, out.lines, recording.case["told"], cluster.requests)


def _by_cli(recording: Recording, client: JobsClient, options: dict[str, Any]) -> int:
    from trainwright.cli import submit
    from trainwright.cli.app import app

    limits = [f"--{name.replace('_', '-')}={value}" for name, value in {**LIMITS, **options}.items()]
    with tempfile.TemporaryDirectory() as scratch, mock.patch.object(submit, "jobs_cluster_for", return_value=client):
        path = Path(scratch) / "job.yaml"
        objects = [obj for obj in recording.case["objects"] if obj["kind"] in ("TrainingRuntime", "TrainJob")]
        path.write_text(yaml.safe_dump_all([obj for obj in objects if obj["kind"] != "TrainJob" or name_of(obj) == "job"]))
        arguments = ["submit", "-f", str(path), "--wait", "--logs", "--logs-of", "all", *limits]
        try:
            return int(app(arguments, standalone_mode=False) or 0)
        except SystemExit as ended:
            return int(ended.code or 0)


def _prepare(recording: Recording, client: JobsClient, options: dict[str, Any]) -> dict[str, Any]:
    for obj in recording.case["objects"]:
        if obj["kind"] == "TrainingRuntime":
            client.create(obj)
    settings = {**LIMITS, "manifest": recording.trainjob, "logs": "all", "preemption_budget": 0, **options}
    return in_groups(TrainRequest, settings)


def _by_component(recording: Recording, client: JobsClient, options: dict[str, Any]) -> int:
    from trainwright import submission
    from trainwright.components import train

    parameters = _prepare(recording, client, options)
    with mock.patch.object(submission, "connect_for_jobs", return_value=client):
        try:
            train.python_func(
                run_id="recorded", metrics=mock.Mock(metadata={}), loss_curve=mock.Mock(path=os.devnull), **parameters
            )
        except SystemExit as ended:
            return int(ended.code or 0)
    return 0


def _by_operator(recording: Recording, client: JobsClient, options: dict[str, Any]) -> int:
    """As a task that waits in its worker."""
    from trainwright.jobs.diagnosis.exit_codes import exit_code_of
    from trainwright.operators import train_job

    parameters = _prepare(recording, client, options)
    operator = train_job.TrainJobOperator(task_id="train", run_id="recorded", **parameters)
    with _task_of(train_job, client):
        try:
            train_job.TrainJobOperator.execute.__wrapped__(operator, task_context())
        except Exception as error:
            print(error)
            return int(exit_code_of(getattr(error, "error", error)))
    return 0


def _by_trigger(recording: Recording, client: JobsClient, options: dict[str, Any]) -> int:
    """As a task that waits in the triggerer: what the trigger has seen reaches the worker as the JSON of its event."""
    from trainwright.jobs.diagnosis.exit_codes import exit_code_of
    from trainwright.operators import train_job, trigger
    from trainwright.operators.values.airflow_api import TaskDeferred

    async def event_of(waiting: Any) -> dict[str, Any]:
        events = [event.payload async for event in waiting.run()]
        (payload,) = events
        return payload

    parameters = {**_prepare(recording, client, options), "deferrable": True}
    operator = train_job.TrainJobOperator(task_id="train", run_id="recorded", **parameters)
    work: Callable[[], Any] = partial(train_job.TrainJobOperator.execute.__wrapped__, operator, task_context())
    with _task_of(train_job, client), mock.patch.object(trigger.TrainJobTrigger, "log", _PrintedLog()):
        while True:
            try:
                work()
            except TaskDeferred as deferred:
                _, arguments = deferred.trigger.serialize()
                waiting = trigger.TrainJobTrigger(**json.loads(json.dumps(arguments)))
                event = json.loads(json.dumps(run_on_clock(event_of(waiting))))
                work = partial(operator.execute_complete, task_context(), event)
            except Exception as error:
                print(error)
                return int(exit_code_of(getattr(error, "error", error)))
            else:
                return 0


@contextlib.contextmanager
def _task_of(module: Any, client: JobsClient) -> Iterator[None]:
    """A task whose log is printed and whose hook returns the client."""
    from trainwright.operators.hook import TrainwrightHook

    with (
        mock.patch.object(TrainwrightHook, "connect", return_value=client),
        mock.patch.object(module.TrainJobOperator, "log", _PrintedLog()),
    ):
        yield


class _PrintedLog:
    def __getattr__(self, _level: str) -> Any:
        return lambda text, *arguments: print(text % arguments if arguments else text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="+")
    parser.add_argument("--by", choices=("cli", "component", "operator", "trigger"), default="cli")
    parser.add_argument("--times", action="store_true", help="print the time of each line")
    parser.add_argument("--requests", action="store_true", help="print the requests, too")
    parser.add_argument("--table", action="store_true", help="one line for each recording")
    arguments = parser.parse_args()
    failed = 0
    for folder in arguments.folder:
        replayed = replay(folder, arguments.by)
        failed += bool(replayed.problems)
        if arguments.table:
            problems = "; ".join(replayed.problems) or "as told"
            print(f"{folder.name:26} exit {replayed.exit_code:3} after {replayed.seconds:6.1f} s  {problems}")
            continue
        print(f"== {folder.name}: exit code {replayed.exit_code} after {replayed.seconds:.1f} s")
        for at, line in replayed.lines:
            print(f"{at:7.2f} {line}" if arguments.times else line)
        for at, request in replayed.requests if arguments.requests else []:
            print(f"{at:7.2f} {request}")
        for problem in replayed.problems:
            print(f"!! {problem}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
