"""Starts `trainwright.pipeline_runs.program`, the process that imports kfp and the code of pipelines, and waits for its result.

On a timeout or an interrupt everything that it started ends with it.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from trainwright.pipeline_runs.errors import BadPipeline, KfpMissing, RunTimeout
from trainwright.tools.process_group import run_in_group

REQUEST, RESULT = "request.json", "result.json"
_PROGRAM = "trainwright.pipeline_runs.program"
_GRACE_SECONDS = 20.0
"""A step of a local run that gets SIGTERM suspends its TrainJob before it ends."""
_LAST_LINES = 5


def run_program(
    request: dict[str, Any],
    *,
    environment: Mapping[str, str],
    timeout_seconds: float | None,
    on_line: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Run one command of the program and return its result.

    Args:
        request: The command and its arguments; they go through a private file, not through the command line.
        environment: Variables to set besides those of this process.
        timeout_seconds: After so many seconds the program and what it started are ended.
        on_line: Called with each line of output, in another thread; without it, the last lines are part of an error.

    Raises KfpMissing, BadPipeline for what the program refuses or if it dies, RunTimeout.
    """
    if importlib.util.find_spec("kfp") is None:
        raise KfpMissing
    with tempfile.TemporaryDirectory(prefix="trainwright-pipeline-") as folder:
        Path(folder, REQUEST).write_text(json.dumps(request), "utf-8")
        last: deque[str] = deque(maxlen=_LAST_LINES)
        code = _run(folder, environment, timeout_seconds, on_line or last.append)
        try:
            result: dict[str, Any] = json.loads(Path(folder, RESULT).read_bytes())
        except (FileNotFoundError, ValueError):
            said = f": {' | '.join(filter(None, map(str.strip, last)))}" if last else ""
            raise BadPipeline(f"the process that runs the pipeline's code ended with {_ending(code)}{said}") from None
    if "error" in result:
        raise BadPipeline(result["error"])
    return result


def _run(folder: str, environment: Mapping[str, str], timeout_seconds: float | None, on_line: Callable[[str], None]) -> int:
    try:
        return run_in_group(
            [sys.executable, "-P", "-m", _PROGRAM, folder],
            environment={**os.environ, **environment},
            timeout_seconds=timeout_seconds,
            on_line=on_line,
            grace_seconds=_GRACE_SECONDS,
        )
    except TimeoutError as error:
        raise RunTimeout(f"the pipeline {error}") from None


def _ending(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"
