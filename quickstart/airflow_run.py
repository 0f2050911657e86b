"""Runs a bundled DAG in its own process and parses its output."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from trainwright.quickstart.airflow_dag import configure
from trainwright.quickstart.orchestrator import Orchestrator, Parameters
from trainwright.quickstart.run_folder import RunFolder
from trainwright.quickstart.steps_view import Line, StepsView

_STRUCTURED = re.compile(r"^\d{4}-\d\d-\d\dT\S+ \[(\w+) *\] (.*?) *\[[\w.]+\](?: .*)?$")
_STARTED = re.compile(r"^\[DAG TEST\] starting task_id=([\w-]+)")
_ENDED = re.compile(r"^\[DAG TEST\] end task task_id=([\w-]+)")
_FAILED = "Task failed with exception"
_SKIPPED = "Skipping task."
_MAX_CHARS = 8000


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
        for line in process.stdout:
            view.write(line)
        return process.wait() == 0
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(10)


class Reader:
    """Parses the log of `dag.test()`, in which failed and successful tasks end with the same line."""

    def __init__(self) -> None:
        self._failed = self._skipped = False

    def __call__(self, line: str) -> Line:
        match = _STRUCTURED.match(line)
        text = match[2] if match else line.strip()
        if started := _STARTED.match(text):
            self._failed = self._skipped = False
            return Line(begins=started[1])
        if text.startswith(_FAILED):
            self._failed = True
        elif text.startswith(_SKIPPED):
            self._skipped = True
        if ended := _ENDED.match(text):
            return Line(ends=ended[1], succeeded=not self._failed, skipped=self._skipped)
        return Line(text=text)


def failure_log(log_file: Path) -> str:
    """The log from the failed task's exception on, without Airflow's own lines."""
    try:
        text = log_file.read_text("utf-8").splitlines()
    except FileNotFoundError:
        return ""
    failures = [number for number, line in enumerate(text) if _FAILED in line]
    lines = text[failures[-1] :] if failures else text[-40:]
    return "\n".join(line for line in lines if line.strip() and not _STRUCTURED.match(line))[-_MAX_CHARS:]


AIRFLOW = Orchestrator(run_finetune, Reader(), failure_log)
