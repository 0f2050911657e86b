"""Runs a compiled pipeline on this machine, each step as a process of this Python environment. pip never runs."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainwright.api.objects import Obj
from trainwright.pipeline_runs.compiled import CompiledPipeline
from trainwright.pipeline_runs.errors import BadPipeline
from trainwright.pipeline_runs.local_lines import LocalFailure
from trainwright.pipeline_runs.local_step import is_python_component
from trainwright.pipeline_runs.local_task_settings import with_task_settings
from trainwright.pipeline_runs.run_checks import forgotten_values
from trainwright.pipeline_runs.source import run_program
from trainwright.pipeline_runs.task_nodes import FailedTask
from trainwright.text.foreign_texts import one_line

_TASK = re.compile(r"(?!for-loop-\d+-iteration-\d+$)[a-z0-9][a-z0-9-]*")
"""Names that kfp makes, but for the folders of iterations."""
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
    folder: str = ""
    """Where the artifacts of this run are."""


def run_locally(
    pipeline: CompiledPipeline,
    values: dict[str, Any],
    *,
    folder: Path,
    kubeconfig: Path | None = None,
    timeout_seconds: float | None = None,
    on_line: Callable[[str], None],
) -> LocalRun:
    """Run a pipeline, and wait for its end. Settings of tasks that have no effect here are warnings.

    Args:
        pipeline: The compiled pipeline.
        values: Values of its parameters.
        folder: Where the folder of the run is made, for the artifacts of its steps.
        kubeconfig: Of the cluster that the steps use; None leaves the choice to KUBECONFIG and so on.
        timeout_seconds: After so many seconds the run is stopped; None has no limit.
        on_line: Called with each line of output.

    Raises BadPipeline if it cannot run here, KfpMissing, RunTimeout.
    """
    check_runnable_here(pipeline)
    local, warnings = with_task_settings(pipeline, values)
    for warning in (*warnings, *forgotten_values(pipeline)):
        on_line(f"warning: {warning}")
    request = {"spec": local.documents[0], "platform": local.documents[1] if len(local.documents) > 1 else {}}
    result = run_program(
        {"command": "run", **request, "parameters": values, "pipeline_root": str(folder.absolute())},
        environment={"KUBECONFIG": str(kubeconfig)} if kubeconfig is not None else {},
        timeout_seconds=timeout_seconds,
        on_line=on_line,
    )
    failures = tuple(LocalFailure(FailedTask(**one["task"]), tuple(one["log"])) for one in result.get("failures", []))
    # Without a failure no task was left to start: the run was interrupted.
    cause = failures[0].task if failures else None
    message = "" if cause is None else f"task {cause.name} failed" + (f": {cause.message}" if cause.message else "")
    return LocalRun(result["state"], message, result.get("outputs", {}), failures, result["folder"])


def check_runnable_here(pipeline: CompiledPipeline) -> None:
    """Check that every component can run in this environment, into which nothing is installed.

    Raises BadPipeline naming the components of other images, the packages that are not installed, and tasks that kfp's compiler
    does not write: their names would be folders elsewhere.
    """
    problems = [
        f"the task {one_line(name)[:80]!r} is malformed"
        for _, name, task in pipeline.tasks()
        if not _TASK.fullmatch(name) or not _is_complete(pipeline, task)
    ]
    for name, container in pipeline.executors():
        if not container:  # an importer
            continue
        label, command = name.removeprefix("exec-"), container.get("command", [])
        if not is_python_component(container):
            problems.append(f"{label} is a program of an image, and not a lightweight Python component")
        elif len(command) > 2 and _INSTALLS in command[2]:
            missing = [package for package in _packages(command[2]) if not _is_installed(package)]
            if missing:
                problems.append(f"{label} installs {', '.join(missing)}; install it in this environment")
    if problems:
        raise BadPipeline(f"{pipeline.name} cannot run on this machine: {'; '.join(problems)}")


def _is_complete(pipeline: CompiledPipeline, task: Obj) -> bool:
    """Whether the component of a task exists, and so does its executor."""
    component, spec = pipeline.component_of(task), pipeline.documents[0]
    return "dag" in component or component.get("executorLabel") in spec["deploymentSpec"].get("executors", {})


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
