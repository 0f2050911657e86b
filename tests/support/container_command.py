"""What a training container would run, run here: the command of a request, expanded as Kubernetes does it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from factories import runtime

from trainwright.controlplane.node.expansion import expand_references
from trainwright.jobs import TrainRequest
from trainwright.jobs.code.code_package import PackedCode
from trainwright.jobs.manifest.resolved_request import ResolvedRequest
from trainwright.jobs.manifest.training_program import training_command

BIN = Path(sys.executable).parent


def words_of(
    request: TrainRequest, code: PackedCode | None = None, variables: dict[str, str] | None = None, **policy: Any
) -> list[str]:
    """Command and arguments as the container gets them, with a runtime of that policy; without one, of a program under python3."""
    words = training_command(ResolvedRequest(request, runtime(policy=policy), code=code))
    return [expand_references(word, variables or {}) for word in (*words.command, *words.args)]


def environment(**variables: str) -> dict[str, str]:
    """That of a container: nothing of a run around this one."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TRAINWRIGHT_", "PYTHON", "PIP_"))}
    for name in ("RANK", "JOB_COMPLETION_INDEX", "OMPI_COMM_WORLD_RANK"):
        kept.pop(name, None)
    kept["TRAINWRIGHT_TERMINATION_LOG"] = os.devnull
    return {**kept, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", **variables}


def launch(words: list[str], cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words, capture_output=True, text=True, encoding="utf-8", cwd=cwd, env=environment(**variables), timeout=120, check=False
    )
