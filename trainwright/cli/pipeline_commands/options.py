"""What the commands for pipelines share: options, values of parameters, and how errors end a command."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import Annotated, Any

import typer

from trainwright.api.errors import BadRequest
from trainwright.cli.errors import BAD_INPUT, fail
from trainwright.cli.manifests import read_text
from trainwright.cli.output import print_lines
from trainwright.jobs.diagnosis.exit_codes import ExitCode
from trainwright.pipeline_runs.compiled import CompiledPipeline
from trainwright.pipeline_runs.errors import BadParameters, PipelineError
from trainwright.pipeline_runs.parameters import check_values, given_values
from trainwright.pipeline_runs.run_checks import cacheable_steps, doubled_dollars, forgotten_values, object_texts, size_warnings
from trainwright.pipeline_runs.source import MOST_PARALLEL
from trainwright.text.text_input import NotJson, Unreadable, read_json
from trainwright.text.yaml_reader import read_yaml

PIPELINE_HELP = "A shipped pipeline (trainwright pipeline list), MODULE:FUNCTION, FILE.py[:FUNCTION], or a compiled FILE.yaml."
Image = Annotated[
    str, typer.Option("--image", help="Image of the components, set when the pipeline is compiled. Default: TRAINWRIGHT_IMAGE.")
]
Parallelism = Annotated[
    int | None,
    typer.Option(
        "--parallelism",
        help="Trials of the pipeline sweep at once, set when it is compiled. Default: TRAINWRIGHT_PARALLELISM, else 2.",
        min=1,
        max=MOST_PARALLEL,
    ),
]
Param = Annotated[
    list[str] | None,
    typer.Option(
        "--param", metavar="KEY=VALUE|KEY=JSON", help="Repeatable; a list or dict in JSON. Overrides those of --params."
    ),
]
ParamsFile = Annotated[
    str, typer.Option("--params", metavar="FILE", help="File with parameters, an object in JSON or YAML; - for standard input.")
]
Host = Annotated[
    str,
    typer.Option(
        "--host",
        help="Address of the API of Kubeflow Pipelines. Default: KF_PIPELINES_ENDPOINT. A token goes into KFP_EXISTING_TOKEN.",
    ),
]
PipelineNamespace = Annotated[str, typer.Option("-n", "--namespace", help="Your namespace, on a server for many users.")]
Experiment = Annotated[
    str,
    typer.Option(
        "--experiment", help="Created if it does not exist. Default: KF_PIPELINES_DEFAULT_EXPERIMENT_NAME, else Default."
    ),
]


def parameter_values(pipeline: CompiledPipeline, texts: list[str] | None, file: str) -> dict[str, Any]:
    """Return the values of a run, all checked. Raises BadParameters, and BadRequest for a file that cannot be read."""
    document = _document(file) if file else None
    values = given_values(pipeline.parameters, texts or [], document)
    check_values(pipeline.parameters, values)
    return values


def _document(file: str) -> Any:
    text = read_text(file)
    if text.lstrip().startswith("{"):
        try:
            return read_json(text, file)
        except NotJson:
            pass
    documents = read_yaml(text, file)
    if len(documents) != 1:
        raise BadRequest(f"{file}: expected one document with parameters, found {len(documents)}")
    return documents[0] if documents[0] is not None else {}


def print_warnings(pipeline: CompiledPipeline, values: Mapping[str, Any] = {}) -> None:
    """Print what goes wrong on a server: steps from the cache although their data has changed, values that do not arrive, and a
    workflow that is too large.
    """
    carried = (*object_texts(pipeline), *forgotten_values(pipeline), *doubled_dollars(pipeline))
    for warning in (*cacheable_steps(pipeline, values), *carried, *size_warnings(pipeline, values)):
        print_lines(f"warning: {warning}", error=True)


@contextlib.contextmanager
def pipeline_errors_exit() -> Iterator[None]:
    """Print errors of pipelines and servers in one line, those of parameters in a line each, and exit with their code."""
    try:
        yield
    except BadParameters as error:
        for problem in error.problems:
            print_lines(" ".join(problem.split()), error=True)
        raise typer.Exit(BAD_INPUT) from None
    except PipelineError as error:
        fail(str(error), int(error.exit_code))
    except (BadRequest, Unreadable) as error:
        fail(error.message, BAD_INPUT)


@contextlib.contextmanager
def interrupt_exits(what_keeps_running: str = "") -> Iterator[None]:
    """End with exit code 130 on Ctrl-C and SIGTERM; the text says what they have not ended."""
    with _terminated_as_interrupted():
        try:
            yield
        except KeyboardInterrupt:
            fail(f"interrupted{f'; {what_keeps_running}' if what_keeps_running else ''}", int(ExitCode.interrupted))


@contextlib.contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """Raise KeyboardInterrupt on SIGTERM, in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
