"""Runs the pipeline `finetune` on this machine, each step in its own process."""

from __future__ import annotations

import functools
from dataclasses import asdict

from trainwright.api.objects import Obj
from trainwright.quickstart.orchestrator import Orchestrator, Parameters
from trainwright.quickstart.run_folder import RunFolder
from trainwright.quickstart.steps_view import StepsView


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


KFP = Orchestrator(run_pipeline, load_pipeline)
