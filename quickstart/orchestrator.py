"""What `make finetune` asks of an orchestrator: to run the chain once, and to have its output understood."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainwright.quickstart.run_folder import RunFolder
from trainwright.quickstart.steps_view import Line, StepsView


@dataclass(frozen=True)
class Parameters:
    """The parameters of the chain, the same for the pipeline and the DAG."""

    run_id: str
    dataset_uri: str
    model_uri: str
    export_uri: str
    workspace: str
    workspace_path: str
    num_nodes: int
    settings: dict[str, Any]
    num_proc_per_node: int
    env: dict[str, str]
    sample_row: int


@dataclass(frozen=True)
class Orchestrator:
    """`run` runs the chain, its output going to the view, and says whether it succeeded; `read` understands one line of that
    output; `last_words` is what the failing step said, from the log."""

    run: Callable[[StepsView, RunFolder, Parameters], bool]
    read: Callable[[str], Line]
    last_words: Callable[[Path], str]
