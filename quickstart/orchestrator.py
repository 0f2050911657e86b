"""The interface of an orchestrator for `make finetune`: run the pipeline once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from trainwright.quickstart.run_folder import RunFolder
from trainwright.quickstart.steps_view import StepsView


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
