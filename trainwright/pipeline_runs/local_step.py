"""One task of a run on this machine: kfp's own executor runs it in a process of this Python, with the input that is written here.

A task's program is the source of a person's function, or a function of Trainwright. It is started as its container would start it,
but for the shell, the installation of packages, and `python3`, which is this interpreter.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote

from trainwright.api.objects import Obj
from trainwright.pipeline_runs.local_values import BadValue, Values, filled, restored, typed
from trainwright.pipeline_runs.step_command import EXECUTOR, RUNNER, runner_arguments

_PROGRAM_FILE = '"$program_path/ephemeral_component.py"'
"""In the script that kfp's compiler writes: the next word of the command is the program."""
_OUTPUT = "executor_output.json"
_FILE = "file://"
_MAX_LINE = 64 * 1024
_READER_SECONDS = 5.0
_START = """
import json, runpy, sys
with open(sys.argv[1], "rb") as arguments:
    module, *sys.argv[1:] = json.load(arguments)
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""
"""Starts kfp's executor, or the runner of Trainwright, as `python -m` does, with arguments from a private file."""


def is_python_component(container: Obj) -> bool:
    """Whether a container runs a function in kfp's executor: that of a person, or one of Trainwright."""
    return source_of(container) is not None or runner_arguments(container) is not None


def source_of(container: Obj) -> str | None:
    """Return the source of a lightweight Python component; None for every other container."""
    command = container.get("command", [])
    scripts = [at for at, word in enumerate(command[:-1]) if EXECUTOR in word and _PROGRAM_FILE in word]
    return str(command[scripts[0] + 1]) if scripts else None


def executor_input(component: Obj, inputs: Values, folder: Path) -> Obj:
    """Return the input of kfp's executor, in the form of its ExecutorInput message.

    Args:
        component: The task's component; only the inputs that it declares are passed.
        inputs: Their values.
        folder: Where the outputs go, in files of their names.
    """
    declared, made = component.get("inputDefinitions", {}), component.get("outputDefinitions", {})
    return {
        "inputs": {
            "parameterValues": {name: inputs[name] for name in declared.get("parameters", {}) if name in inputs},
            "artifacts": {name: {"artifacts": inputs[name]} for name in declared.get("artifacts", {}) if name in inputs},
        },
        "outputs": {
            "parameters": {name: {"outputFile": str(folder / name)} for name in made.get("parameters", {})},
            "artifacts": {
                name: {"artifacts": [{"name": name, "type": about["artifactType"], "uri": str(folder / name), "metadata": {}}]}
                for name, about in made.get("artifacts", {}).items()
            },
            "outputFile": str(folder / _OUTPUT),
        },
    }


def run_step(
    container: Obj,
    given: Obj,
    environment: Mapping[str, str],
    on_line: Callable[[str], None],
    running: set[subprocess.Popen[bytes]],
) -> int:
    """Run a task's program to its end, and return its exit code, negative for a signal.

    Args:
        container: Its program and arguments; those of a Python component.
        given: The input of kfp's executor. It may contain credentials, so it is not among the arguments of the process.
        environment: Variables to add to those of this process.
        on_line: Called with each line of its output, in another thread.
        running: Has its process while it runs.

    Raises OSError, and ValueError for a variable that a process cannot have.
    """
    source, arguments = source_of(container), runner_arguments(container) or []
    assert source is not None or arguments, "check_runnable_here refuses others"
    # A try begins without the outputs of the one before, as a pod does.
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(Path(given["outputs"]["outputFile"]).parent)
    with tempfile.TemporaryDirectory(prefix="trainwright-step-") as folder:
        start = [RUNNER, *arguments]
        if source is not None:
            program = Path(folder, "component.py")
            program.write_text(source, "utf-8")
            start = [EXECUTOR, "--component_module_path", str(program), *container.get("args", [])]
        file = Path(folder, "arguments.json")
        file.write_text(json.dumps([json.dumps(given) if word == "{{$}}" else word for word in start]), "utf-8")
        process = subprocess.Popen(
            # -P: a step imports nothing from the folder in which the command was typed.
            [sys.executable, "-P", "-c", _START, str(file)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment, "_KFP_RUNTIME": "true"},
        )
        running.add(process)
        assert process.stdout is not None
        reader = threading.Thread(target=_forward, args=(process.stdout, on_line), name="step-output", daemon=True)
        reader.start()
        code = process.wait()
        reader.join(_READER_SECONDS)  # a process that the step leaves behind may hold its output open
        running.discard(process)
        return code


def _forward(output: IO[bytes], on_line: Callable[[str], None]) -> None:
    with output:
        while line := output.readline(_MAX_LINE):
            on_line(line.decode("utf-8", "replace").rstrip("\r\n"))


def outputs_of(component: Obj, given: Obj) -> Values:
    """Return what a task has written: parameters as the types that its component declares, artifacts with their types.

    Raises BadValue for a parameter that is missing, with which a step fails on a server, too, or is not of its type.
    """
    made, outputs = component.get("outputDefinitions", {}), given["outputs"]
    try:
        written = json.loads(Path(outputs["outputFile"]).read_text("utf-8"))
    except FileNotFoundError:  # a program that ends its process returns nothing
        written = {}
    except ValueError as error:
        raise BadValue(f"{outputs['outputFile']}: not the output of kfp's executor: {error}") from None
    found: Values = {}
    for name, about in made.get("parameters", {}).items():
        try:
            value = written.get("parameterValues", {}).get(name)
            if value is None:  # what is returned comes first, as on a server
                value = Path(outputs["parameters"][name]["outputFile"]).read_text("utf-8")
            found[name] = typed(value, about["parameterType"])
        except FileNotFoundError:
            raise BadValue(f"its program has ended without the output {name!r}") from None
        except BadValue as error:
            raise BadValue(f"the output {name!r}: {error}") from None
    for name, artifacts in written.get("artifacts", {}).items():
        kind = made.get("artifacts", {}).get(name, {}).get("artifactType", {})
        found[name] = [_artifact(one, kind) for one in artifacts.get("artifacts", [])]
    return found


def imported(importer: Obj, inputs: Values) -> Values:
    """Return the artifact of an importer. Raises BadValue for one that copies into a workspace, which a local run has none of."""
    if importer.get("downloadToWorkspace"):
        raise BadValue("download_to_workspace: a run on this machine has no workspace of Kubeflow Pipelines")
    uri = str(importer["artifactUri"].get("constant", inputs.get("uri")))
    if uri.startswith(_FILE):  # to kfp, the path of an artifact is its address, which is a path on this machine
        uri = unquote(uri.removeprefix(_FILE))
    metadata: Any = filled(restored(importer.get("metadata", {})), lambda name: inputs.get(name, ""), {})
    return {"artifact": [{"name": "artifact", "type": importer["typeSchema"], "uri": uri, "metadata": metadata}]}


def _artifact(written: Obj, kind: Obj) -> Obj:
    found = {
        "name": written.get("name", ""),
        "type": kind,
        "uri": written.get("uri", ""),
        "metadata": written.get("metadata", {}),
    }
    return {**found, "customPath": written["custom_path"]} if written.get("custom_path") else found
