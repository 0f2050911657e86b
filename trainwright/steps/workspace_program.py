"""The program of a pod that does a step on the workspace: `python -m trainwright.steps.workspace_program FOLDER STEP ARGUMENTS`.

It reports the result, or the error, in the lines of its log in which a training function reports its result.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from trainwright.jobs.diagnosis.exit_codes import ExitCode, exit_code_of
from trainwright.runtimes.launch import report_result
from trainwright.steps.ends.step_end import description_of
from trainwright.steps.requests import StepRun
from trainwright.steps.workspace_steps import STEPS, do_step
from trainwright.workspace.layout import apply_umask

RESULT, ERROR = "result", "error"


def main(argv: Sequence[str] | None = None) -> int:
    """Do the step. Returns the exit status: 0, or that of the error, which standard error has as one line."""
    folder, step, arguments = argv if argv is not None else sys.argv[1:]
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s", stream=sys.stderr)
    signal.signal(signal.SIGTERM, _end)  # the first process of a container ignores what it does not handle
    try:
        apply_umask(os.environ)
        given = json.loads(arguments)
        result = do_step(Path(folder), STEPS[step].parse(given["request"]), StepRun(**given["run"]))
    except Exception as error:
        description = description_of(error)
        _report({ERROR: description})
        if description is None:
            raise
        print(error, file=sys.stderr)
        return exit_code_of(error)
    _report({RESULT: result})
    return ExitCode.succeeded


def _report(value: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "result.json")
        path.write_text(json.dumps(value), "utf-8")
        report_result([str(path)])


def _end(number: int, _frame: object) -> NoReturn:
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
