"""Runs pipelines on this machine against the cluster of a test, as `trainwright pipeline run --local` does."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from trainwright.pipeline_runs.compiled import CompiledPipeline
from trainwright.pipeline_runs.local_run import LocalRun, run_locally
from trainwright.pipeline_runs.source import compile_pipeline


def run_here(source: str, values: dict[str, Any], folder: Path, kubeconfig: Path | None = None) -> tuple[LocalRun, str]:
    """Run a shipped pipeline or one of a file to its end, with its artifacts in the folder; returns its end, and what it printed."""
    lines: list[str] = []
    ended = run_locally(_compiled(source), values, folder=folder, kubeconfig=kubeconfig, on_line=lines.append)
    return ended, "\n".join(lines)


@functools.cache
def _compiled(source: str) -> CompiledPipeline:
    return compile_pipeline(source)
