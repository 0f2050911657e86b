"""Runs a compiled pipeline on this machine, each step as a process of this Python environment. pip never runs."""

from __future__ import annotations

import copy
import importlib.metadata
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from packaging.version import Version

from trainwright.pipeline_runs.compiled import CompiledPipeline
from trainwright.pipeline_runs.errors import BadPipeline, KfpMissing
from trainwright.pipeline_runs.local_conditions import with_conditions
from trainwright.pipeline_runs.local_failures import LocalFailure, LocalFailures
from trainwright.pipeline_runs.local_integers import with_integers
from trainwright.pipeline_runs.local_task_settings import with_task_settings
from trainwright.pipeline_runs.program_run import run_program
from trainwright.text.terminal import plain

_FLOOR = (2, 17)
"""The local runner of earlier versions runs every branch of a condition."""
_EXECUTOR = "kfp.dsl.executor_main"
_INSTALLS = "pip install"
_QUOTED = re.compile(r"'([^']*)'|\"([^\"]*)\"")
_REQUIREMENT = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[[^\]]*\])?\s*([<>=!~;].*)?")
_OF_KFP = ("kfp", "typing-extensions")
"""What kfp adds to each component by itself."""


@dataclass(frozen=True)
class LocalRun:
    """How a run on this machine ended: SUCCEEDED with its outputs, or FAILED with a message and the tasks that failed."""

    state: str
    message: str = ""
    outputs: dict[str, Any] = field(default_factory=dict)
    failures: tuple[LocalFailure, ...] = ()


def run_locally(
    pipeline: CompiledPipeline,
    values: dict[str, Any],
    *,
    folder: Path,
    kubeconfig: Path | None = None,
    timeout_seconds: float | None = None,
    on_line: Callable[[str], None],
) -> LocalRun:
    """Run a pipeline with kfp's local runner, and wait for its end. Settings of tasks that have no effect here are warnings.

    Args:
        pipeline: The compiled pipeline.
        values: Values of its parameters.
        folder: Where the artifacts of the steps go.
        kubeconfig: Of the cluster that the steps use; None leaves the choice to KUBECONFIG and so on.
        timeout_seconds: After so many seconds the run is stopped; None has no limit.
        on_line: Called with each line of output.

    Raises BadPipeline if the local runner cannot run it, KfpMissing, RunTimeout.
    """
    _require_local_runner()
    local, warnings = with_task_settings(with_conditions(with_integers(runnable_here(pipeline))), values)
    for warning in warnings:
        on_line(f"warning: {warning}")
    failures = LocalFailures()

    def read(line: str) -> None:
        failures.read(line)
        on_line(line)

    result = run_program(
        {
            "command": "run",
            "text": local.text,
            "parameters": values,
            "pipeline_root": str(folder.absolute()),
        },
        environment={
            # kfp starts steps with `python -m`, which would import from the current folder first
            "PYTHONSAFEPATH": "1",
            **({"KUBECONFIG": str(kubeconfig)} if kubeconfig is not None else {}),
        },
        timeout_seconds=timeout_seconds,
        on_line=read,
    )
    ended = replace(LocalRun(**result), failures=tuple(failures.found))
    return replace(ended, message=_message(ended)) if ended.message else ended


def _message(ended: LocalRun) -> str:
    """Return the first failed task with its cause; without one, what kfp says."""
    first = ended.failures[0].task if ended.failures else None
    return (
        plain(ended.message) if first is None else f"task {first.name} failed" + (f": {first.message}" if first.message else "")
    )


def _require_local_runner() -> None:
    try:
        version = importlib.metadata.version("kfp")
    except importlib.metadata.PackageNotFoundError:
        raise KfpMissing from None
    if Version(version).release < _FLOOR:
        needed = ".".join(map(str, _FLOOR))
        raise BadPipeline(f"kfp {version} runs every branch of a condition on this machine; install kfp {needed} or later")


def runnable_here(pipeline: CompiledPipeline) -> CompiledPipeline:
    """Return the pipeline without installations: kfp's local runner would run pip in this environment.

    Raises BadPipeline for components that it cannot run, and for packages that are not installed.
    """
    local = replace(pipeline, documents=copy.deepcopy(pipeline.documents))
    problems = []
    for name, container in local.executors():
        if not container:
            continue
        label, command = name.removeprefix("exec-"), container.get("command", [])
        if not any(_EXECUTOR in word for word in command):
            problems.append(f"{label} is not a lightweight Python component")
        elif len(command) > 2 and _INSTALLS in command[2]:
            missing = [package for package in _packages(command[2]) if not _is_installed(package)]
            if missing:
                problems.append(f"{label} installs {', '.join(missing)}; install it in this environment")
            container["command"] = command[3:]
    if problems:
        raise BadPipeline(f"{pipeline.name} cannot run on this machine: {'; '.join(problems)}")
    return local


def _packages(script: str) -> list[str]:
    """Return what a component installs, besides kfp."""
    _, *installations = script.split(_INSTALLS)
    words = [first or second for part in installations for first, second in _QUOTED.findall(part)]
    return [word for word in words if not word.startswith(("$", "-")) and not _is_of_kfp(word)]


def _is_of_kfp(requirement: str) -> bool:
    found = _REQUIREMENT.fullmatch(requirement)
    return found is not None and found[1] in _OF_KFP


def _is_installed(requirement: str) -> bool:
    """Whether a package of that name is installed. Its version is not compared: it is this environment's to choose."""
    found = _REQUIREMENT.fullmatch(requirement)
    if found is None:
        return False
    try:
        importlib.metadata.version(found[1])
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
