"""The interface of an orchestrator for `make finetune`: run the pipeline once and parse its output."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainwright.quickstart.run_folder import RunFolder
from trainwright.quickstart.steps_view import Line, StepsView


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
    """`run` runs the pipeline with its output going to the view, and returns whether it succeeded. `read` parses a line of that
    output. `failure_log` extracts the output of the failed step from the log. `load` imports what `run` needs while the cluster
    starts."""

    run: Callable[[StepsView, RunFolder, Parameters], bool]
    read: Callable[[str], Line]
    failure_log: Callable[[Path], str]
    load: Callable[[], object] = lambda: None
