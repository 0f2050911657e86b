"""`python -m trainwright.steps.run --version V --module M ...`: a step of Kubeflow Pipelines, whose function is in this image.

kfp's own executor runs the function. A pipeline that was compiled with another version of Trainwright may have inputs and outputs
that the function does not have: kfp would drop such an input without a word, and fail for an output after all the work.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import trainwright
from trainwright.api.termination_log import write_termination_message
from trainwright.pipeline_runs.local_values import texts_in
from trainwright.steps.training import kfp_outputs

_LOG_FORMAT = "[KFP Executor %(asctime)s %(levelname)s]: %(message)s"
"""That of kfp's executor, by which a local run knows the lines that are none of the step's own."""
_OF_COMPILER = "pipelinechannel--"
"""Inputs that kfp's compiler adds to a task, for values inside texts and objects. No function has them."""


class WrongVersion(ValueError):
    """The compiled component and the image do not belong together."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the step. Raises SystemExit with a message if the image does not have what the compiled component names."""
    parser = argparse.ArgumentParser(prog="trainwright.steps.run", description=__doc__)
    for option in ("--version", "--module", "--function_to_execute", "--executor_input"):
        parser.add_argument(option, required=True)
    parser.add_argument("--program", type=json.loads, help="that of a training function, see function_step")
    options = parser.parse_args(arguments)
    logging.basicConfig(stream=sys.stdout, format=_LOG_FORMAT, level=logging.INFO)
    given, program = json.loads(options.executor_input), options.program
    prepare(options.version, given)
    try:
        function = _function_of(options.module, options.function_to_execute)
        given = given if program is None else _train_input(given, program)
        check_fits(function, given)
    except WrongVersion as error:
        message = f"{options.function_to_execute}: {error}; {_versions(options.version)}"
        write_termination_message(message)
        raise SystemExit(message) from None

    if program is None:
        from kfp.dsl.executor import Executor

        Executor(given, function).execute()
    else:
        from trainwright.steps.training.function_step import FunctionExecutor

        FunctionExecutor(given, function, program).execute()


def prepare(version: str, given: Mapping[str, Any]) -> None:
    """Prepare this process for kfp's executor, whose input is `given`, and warn of a component compiled with another version.

    Raises SystemExit for a value that has not arrived as it is.
    """
    kfp_outputs.install()
    if version != trainwright.__version__:
        print(f"warning: {_versions(version)}", flush=True)
    if names := changed_values(given):
        message = (
            f"{', '.join(map(repr, names))} has a quote or a backslash, which Kubeflow Pipelines takes for JSON where a pipeline puts "
            "a text into an object or another text; pass the value as a separate input, or the whole object as one parameter or output"
        )
        write_termination_message(message)
        raise SystemExit(message)


def changed_values(given: Mapping[str, Any]) -> list[str]:
    """Return the texts that the server has put into the inputs of kfp's executor as something else, by their names in the pipeline.

    It replaces a reference in the JSON of all inputs by the text as it is, and passes the text on beside it.
    """
    inputs = (given.get("inputs") or {}).get("parameterValues") or {}
    added = {name: value for name, value in inputs.items() if name.startswith(_OF_COMPILER)}
    arrived = list(texts_in([value for name, value in inputs.items() if name not in added]))
    return [
        name.removeprefix(_OF_COMPILER)
        for name, value in added.items()
        if isinstance(value, str) and ('"' in value or "\\" in value) and not any(value in text for text in arrived)
    ]


def _train_input(given: dict[str, Any], program: Mapping[str, Any]) -> dict[str, Any]:
    from trainwright.steps.training.function_step import PROGRAM, train_input

    if program.keys() != PROGRAM:
        raise WrongVersion(f"the image cannot read a training function: {', '.join(sorted(program.keys() ^ PROGRAM))}")
    return train_input(given, program)


def _versions(compiled: str) -> str:
    if compiled == trainwright.__version__:  # the version alone would read as if both were the same
        return f"pipeline and image have Trainwright {compiled}, but of different builds; compile the pipeline again"
    return (
        f"the pipeline was compiled with Trainwright {compiled}, and the image of the step has {trainwright.__version__}; "
        "compile it again, or set TRAINWRIGHT_IMAGE to the image of that version"
    )


def _function_of(module: str, name: str) -> Callable[..., Any]:
    try:
        found = getattr(importlib.import_module(module), name, None)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # something that the module needs is not installed
        found = None
    if not callable(found):
        raise WrongVersion(f"the image has no component {module}.{name}")
    return found  # type: ignore[no-any-return]


def check_fits(function: Callable[..., Any], given: Mapping[str, Any]) -> None:
    """Check that a function takes the inputs and makes the outputs of a compiled component.

    `given` is the input of kfp's executor. Raises WrongVersion naming what is missing on either side.
    """
    signature = inspect.signature(function)
    inputs, outputs = given.get("inputs") or {}, given.get("outputs") or {}
    named = {*(inputs.get("parameterValues") or {}), *(inputs.get("artifacts") or {})}
    wanted = {*(outputs.get("parameters") or {}), *(outputs.get("artifacts") or {})}
    written = {name for name, one in signature.parameters.items() if _is_output(one.annotation)}
    needed = {name for name, one in signature.parameters.items() if one.default is one.empty} - written
    returned = {*getattr(signature.return_annotation, "_fields", ("Output",))}
    for names, problem in (
        ({name for name in named - signature.parameters.keys() if not name.startswith(_OF_COMPILER)}, "the image has no input"),
        (needed - named, "the pipeline does not set the input"),
        (wanted - written - returned, "the image does not make the output"),
        (written - wanted, "the pipeline does not have the output"),
    ):
        if names:
            raise WrongVersion(f"{problem} {', '.join(sorted(names))}")


def _is_output(annotation: Any) -> bool:
    """Whether an argument of a function is the place of an output: an artifact, or the path of a value."""
    from kfp.dsl import OutputPath
    from kfp.dsl.types.type_annotations import is_artifact_wrapped_in_Output

    return isinstance(annotation, OutputPath) or bool(is_artifact_wrapped_in_Output(annotation))


if __name__ == "__main__":
    main()
