"""Runs the pipeline of `make finetune` once: with Kubeflow Pipelines on this machine, or with Airflow in its own process."""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trainwright.api.objects import Obj
from trainwright.pipeline_runs.local_inputs import State
from trainwright.quickstart.airflow_dag import configure
from trainwright.quickstart.run_folder import RunFolder
from trainwright.quickstart.terminal import StepsView
from trainwright.text.foreign_texts import plain

_STRUCTURED = re.compile(r"^\d{4}-\d\d-\d\dT\S+ \[(\w+) *\] (.*?) *\[[\w.]+\](?: .*)?$")
_STARTED = re.compile(r"^\[DAG TEST\] starting task_id=([\w-]+)")
_ENDED = re.compile(r"^\[DAG TEST\] end task task_id=([\w-]+)")
_FAILED = "Task failed with exception"
_SKIPPED = "Skipping task."


@dataclass(frozen=True)
class Parameters:
    """The parameters of the run, the same for the pipeline and the DAG."""

    dataset_uri: str
    model_uri: str
    export_uri: str
    workspace: str
    num_nodes: int
    training: dict[str, Any]
    data: dict[str, Any]
    evaluation: dict[str, Any]


@dataclass(frozen=True)
class Orchestrator:
    """`run` runs the pipeline in a view, and returns whether it succeeded. `load` prepares `run` while the cluster starts."""

    run: Callable[[StepsView, RunFolder, Parameters], bool]
    load: Callable[[], object] = lambda: None


@functools.cache
def load_pipeline() -> Obj:
    """Compile the pipeline, which imports kfp in its own process: two seconds."""
    from trainwright.pipeline_runs.source import compile_pipeline

    return compile_pipeline("finetune").documents[0]


def run_pipeline(view: StepsView, folder: RunFolder, parameters: Parameters) -> bool:
    """Run the pipeline; returns whether all steps succeeded."""
    from trainwright.pipeline_runs.local_graph import Graph, run_graph

    succeeded, _ = run_graph(Graph.below(folder.pipeline_root, load_pipeline(), view), asdict(parameters))
    return succeeded


def run_finetune(view: StepsView, folder: RunFolder, parameters: Parameters) -> bool:
    """Run the DAG of `make finetune` once; returns whether every task succeeded."""
    return run_dag(view, folder.path.parent / ".airflow", "finetune", asdict(parameters))


def run_dag(view: StepsView, home: Path, module: str, parameters: dict[str, Any], report: Path | None = None) -> bool:
    """Set up Airflow in its home if necessary and run a DAG once; returns whether it succeeded. See airflow_dag for the report."""
    env = {**os.environ, **configure(home), "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-P", "-m", "trainwright.quickstart.airflow_dag", module, json.dumps(parameters)]
    command += [str(report)] if report else []
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env)
    assert process.stdout is not None
    try:
        reader = _Reader(view)
        for line in process.stdout:
            reader.read(plain(line).rstrip())
        return process.wait() == 0
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(10)


class _Reader:
    """Reads the log of `dag.test()`, in which failed and successful tasks end with the same line, into a view."""

    def __init__(self, view: StepsView) -> None:
        self._view, self._task, self._state = view, "", State.succeeded

    def read(self, line: str) -> None:
        match = _STRUCTURED.match(line)
        text = match[2] if match else line.strip()
        if started := _STARTED.match(text):
            self._task, self._state = started[1], State.succeeded
            self._view.begins(self._task)
        elif ended := _ENDED.match(text):
            self._view.ends(ended[1], self._state, {}, "")
            self._task = ""
        elif self._task and not text.startswith("::"):  # marks of groups of lines
            if text.startswith(_FAILED):
                self._state = State.failed
            elif text.startswith(_SKIPPED):
                self._state = State.skipped
            if not match or self._state is not State.failed:  # after an exception, Airflow's own lines tell nothing
                self._view.prints(self._task, text if match else line)
        else:
            self._view.note(line)


ORCHESTRATORS = {"kfp": Orchestrator(run_pipeline, load_pipeline), "airflow": Orchestrator(run_finetune)}
