"""Which pipeline a command means: a shipped one, a function of a module or a file, or a file that is compiled already.

The code of pipelines, and kfp, are imported by a separate process, `trainwright.pipeline_runs.program`. On a timeout or an
interrupt everything that it started ends with it.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainwright.pipeline_runs.compiled import CompiledPipeline, check_compiled
from trainwright.pipeline_runs.errors import BadPipeline, KfpMissing, RunTimeout
from trainwright.pipeline_runs.run_checks import check_integers
from trainwright.programs import run_in_group
from trainwright.runtimes.image import VARIABLE as IMAGE_VARIABLE
from trainwright.text.text_input import MAX_BYTES, decoded

PARALLELISM_VARIABLE = "TRAINWRIGHT_PARALLELISM"
MOST_PARALLEL = 500
_COMPILE_SECONDS = 300.0
"""Importing frameworks from a slow disk takes most of a minute."""
_IDENTIFIER = r"[A-Za-z_][A-Za-z0-9_]{0,199}"
_SHIPPED = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,199}")
_MODULE = re.compile(rf"{_IDENTIFIER}(?:\.{_IDENTIFIER}){{0,20}}:{_IDENTIFIER}")
_FILE = re.compile(rf"(?P<file>.{{1,4096}}\.py)(?::{_IDENTIFIER})?", re.DOTALL)
_IMAGE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._:/@+-]|\{image\}){0,511}")
_FORMS = "NAME of a shipped pipeline, MODULE:FUNCTION, FILE.py, FILE.py:FUNCTION, or FILE.yaml that is compiled"
REQUEST, RESULT = "request.json", "result.json"
_PROGRAM = "trainwright.pipeline_runs.program"
_GRACE_SECONDS = 20.0
"""A step of a local run that gets SIGTERM suspends its TrainJob before it ends."""
_LAST_LINES = 5


@dataclass(frozen=True)
class CompileSettings:
    """What is set when a pipeline is compiled: empty values leave the environment's."""

    image: str = ""
    parallelism: int | None = None
    """Trials of `sweep` that train at once."""

    def __post_init__(self) -> None:
        if self.image and not _IMAGE.fullmatch(self.image):
            raise BadPipeline(f"image: {self.image[:80]!r} is not the name of an image")
        if self.parallelism is not None and not 1 <= self.parallelism <= MOST_PARALLEL:
            raise BadPipeline(f"parallelism: {self.parallelism} is not in 1-{MOST_PARALLEL}")

    @property
    def environment(self) -> dict[str, str]:
        set_here = {IMAGE_VARIABLE: self.image, PARALLELISM_VARIABLE: str(self.parallelism or "")}
        return {name: value for name, value in set_here.items() if value}


@dataclass(frozen=True)
class ListedPipelines:
    """The shipped pipelines that compile, by name, and why the others do not."""

    compiled: Mapping[str, CompiledPipeline]
    failed: Mapping[str, str] = field(default_factory=dict)


def compile_pipeline(source: str, settings: CompileSettings = CompileSettings()) -> CompiledPipeline:
    """Return a compiled pipeline.

    Code is imported in a process of its own: the image and the parallelism are read when the components are imported, which may have
    happened here already, and what a user's module does is of no consequence for this process.

    Args:
        source: The name of a shipped pipeline, `module:function`, `file.py`, `file.py:function`, or a compiled `file.yaml`.
        settings: Image and parallelism.

    Raises BadPipeline if there is none or it does not compile, KfpMissing without kfp.
    """
    if source.endswith((".yaml", ".yml")):
        if settings.environment:
            raise BadPipeline(
                f"{source}: it is compiled already: the image and the parallelism are set when a pipeline is compiled"
            )
        return _with_certain_values(CompiledPipeline.parse(_read(source), source))
    checked = _checked(source)
    result = run_program(
        {"command": "compile", "source": checked}, environment=settings.environment, timeout_seconds=_COMPILE_SECONDS
    )
    return _with_certain_values(CompiledPipeline.parse(result["text"], source))


def shipped_pipelines(settings: CompileSettings = CompileSettings()) -> ListedPipelines:
    """Compile all shipped pipelines. Raises KfpMissing, and BadPipeline if none can be imported."""
    result = run_program({"command": "list"}, environment=settings.environment, timeout_seconds=_COMPILE_SECONDS)
    compiled = {name: CompiledPipeline.parse(text, name) for name, text in sorted(result["texts"].items())}
    return ListedPipelines(compiled, dict(sorted(result["failed"].items())))


def _with_certain_values(pipeline: CompiledPipeline) -> CompiledPipeline:
    check_integers(pipeline)
    check_compiled(pipeline)
    return pipeline


def _checked(source: str) -> str:
    if found := _FILE.fullmatch(source):
        try:
            is_file = Path(found["file"]).is_file()
        except ValueError:  # a null character
            is_file = False
        except OSError as error:
            raise BadPipeline(f"{found['file'][:200]}: {error.strerror}") from None
        if not is_file:
            raise BadPipeline(f"{found['file'][:200]}: no such file")
        return source
    if not (_SHIPPED.fullmatch(source) or _MODULE.fullmatch(source)):
        raise BadPipeline(f"{source[:80]!r} is not a pipeline: expected {_FORMS}")
    return source


def _read(file: str) -> str:
    try:
        with Path(file).open("rb") as stream:
            return decoded(stream.read(MAX_BYTES + 1), file)
    except OSError as error:
        raise BadPipeline(f"{file[:200]}: {error.strerror or error}") from None
    except ValueError as error:  # not UTF-8; a null character in the name
        raise BadPipeline(str(error)) from None


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
