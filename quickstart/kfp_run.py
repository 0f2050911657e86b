"""Runs the pipeline `finetune` with kfp's local runner, in this process."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import warnings
from dataclasses import asdict
from pathlib import Path

from trainwright.quickstart.orchestrator import Orchestrator, Parameters
from trainwright.quickstart.run_folder import RunFolder
from trainwright.quickstart.steps_view import Line, StepsView

_STARTED = re.compile(r"Executing task '([\w-]+)'")
_ENDED = re.compile(r"Task '([\w-]+)' finished with status (\w+)")
_EXECUTOR_INPUT_ENDS = "    }"
_NOISE = re.compile(r"^\s*\[KFP Executor |^\d\d:\d\d:\d\d\.\d+ - |^-{20,}$")
_MAX_CHARS = 8000
log = logging.getLogger(__name__)


def load() -> object:
    """Import kfp and compile the pipeline: a second."""
    from trainwright.pipelines import finetune

    return finetune


def run_pipeline(view: StepsView, folder: RunFolder, parameters: Parameters) -> bool:
    """Run every step in its own process; returns whether all succeeded."""
    from kfp import local

    from trainwright.pipelines import finetune as pipeline

    os.environ["PYTHONSAFEPATH"] = "1"  # kfp starts steps with `python -m`, which would import from the current folder first
    runner = local.SubprocessRunner(use_venv=False)
    local.init(runner=runner, pipeline_root=str(folder.pipeline_root), raise_on_error=True)
    with contextlib.redirect_stdout(view), warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", module=r"kfp\.local"
        )  # of images and resources, which a process on this machine has none of
        try:
            pipeline(**asdict(parameters))
        except RuntimeError as error:  # raised by kfp for a failed task
            log.info("pipeline failed error=%s", error)
            return False
    return True


def read_line(line: str) -> Line:
    if match := _STARTED.search(line):
        return Line(begins=match[1])
    if match := _ENDED.search(line):
        return Line(ends=match[1], succeeded=match[2] == "SUCCESS")
    return Line(text=line.strip())


def failure_log(log_file: Path) -> str:
    """The log of the first step that failed, without the output of kfp's executor; of the last one if none says so."""
    try:
        text = log_file.read_text("utf-8").splitlines()
    except FileNotFoundError:
        return ""
    lines = _lines_of_step(text)
    closed = [number for number, line in enumerate(lines) if line == _EXECUTOR_INPUT_ENDS]
    lines = lines[closed[-1] + 1 :] if closed else lines
    return "\n".join(line.removeprefix("    ") for line in lines if line.strip() and not _NOISE.search(line))[-_MAX_CHARS:]


def _lines_of_step(text: list[str]) -> list[str]:
    """Steps run one after the other. The exit handler follows the one that failed."""
    started = ""
    lines: list[str] = []
    for line in text:
        if match := _STARTED.search(line):
            started, lines = match[1], []
        elif (match := _ENDED.search(line)) and match[1] == started and match[2] != "SUCCESS":
            break
        else:
            lines.append(line)
    return lines


KFP = Orchestrator(run_pipeline, read_line, failure_log, load)
