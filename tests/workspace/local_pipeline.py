"""Runs a pipeline with kfp's local runner, in a separate process, against the cluster of `support.fast_training_cluster`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from support.fast_training_cluster import Runs

PROGRAM = """
import json, sys
from kfp import local
from trainwright import pipelines
local.init(runner=local.SubprocessRunner(use_venv=False), pipeline_root=sys.argv[2], raise_on_error=True)
getattr(pipelines, sys.argv[1])(**json.loads(sys.argv[3]))
"""


def run_pipeline(runs: Runs, name: str, root: str, parameters: dict[str, Any]) -> tuple[int, str]:
    """Run a shipped pipeline to its end, with its artifacts in the folder `root`; returns the exit code, and what it printed."""
    return run_program(runs, PROGRAM, name, str(runs.folder / root), json.dumps(parameters))


def run_program(runs: Runs, program: str, *arguments: str) -> tuple[int, str]:
    """Run a program with the credentials of the cluster; returns the exit code, and what it printed."""
    environ = {**os.environ, "KUBECONFIG": str(runs.folder / "home/kubeconfig"), "PYTHONSAFEPATH": "1"}
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False, env=environ)
    return done.returncode, f"{done.stdout}\n{done.stderr}"
