"""What a step runs: the command of a component with its executor input, as the driver and the launcher make it."""

from __future__ import annotations

import functools
import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from support.on_first_use import OnFirstUse

compiler = OnFirstUse("kfp.compiler")
step_component = OnFirstUse("trainwright.components.step_component")

EXECUTOR_OUTPUT = "executor_output.json"
_INPUT = "{{$}}"
_LAUNCHER = ("/kfp-launcher/launch", "--pipeline_name", "pipeline", "--run_id", "0" * 36, "--pod_name", "0" * 60)


@dataclass(frozen=True)
class StepProgram:
    """`folder` has the outputs of the step; it is part of the executor input, so every try of the step has the same."""

    name: str
    command: tuple[str, ...]
    folder: Path
    place: str = ""
    """Where it is in the pipeline, in the names of Argo's nodes; its name by default."""
    driver_inputs: Mapping[str, str] = field(default_factory=dict)
    """What the workflow hands to the driver of the step, as texts."""
    pod_patch: str = ""
    """What the driver hands to the executor: the launcher's command has the component and the executor's input as texts."""

    @property
    def executor_output(self) -> Path:
        return self.folder / EXECUTOR_OUTPUT


def step_program(component: Any, arguments: dict[str, Any], folder: Path) -> StepProgram:
    """The program of a component; `arguments` are its parameters, others have their default."""
    name, interface = component.name, _interface(component)
    container = component.component_spec.implementation.container
    told = _json(_executor_input(interface, arguments, folder))
    words = [*container.command, *(container.args or [])]
    stored = _json(interface)
    inputs = {
        "component": stored,
        "container": _json({"image": container.image, "command": container.command, "args": container.args}),
        "task": _json({"inputs": {"parameters": {name: {"runtimeValue": {"constant": arguments[name]}} for name in arguments}}}),
    }
    launcher = [*_LAUNCHER, "--component_spec", stored, "--executor_input", told, "--"]
    patch = _json({"containers": [{"name": "main", "image": container.image, "command": launcher, "args": words}]})
    command = tuple(word.replace(_INPUT, told) for word in words)
    return StepProgram(name, command, folder, driver_inputs=inputs, pod_patch=patch)


def _executor_input(interface: dict[str, Any], arguments: dict[str, Any], folder: Path) -> dict[str, Any]:
    inputs, outputs = (interface.get(f"{part}Definitions") or {} for part in ("input", "output"))
    known = inputs.get("parameters") or {}
    assert arguments.keys() <= known.keys(), f"no parameters: {sorted(arguments.keys() - known.keys())}"
    defaults = {name: _default(about) for name, about in known.items() if "defaultValue" in about}
    artifacts = {
        name: {"artifacts": [{"name": name, "type": about["artifactType"], "uri": str(folder / name), "metadata": {}}]}
        for name, about in (outputs.get("artifacts") or {}).items()
    }
    parameters = {name: {"outputFile": str(folder / name)} for name in outputs.get("parameters") or {}}
    return {
        "inputs": {"parameterValues": {**defaults, **arguments}},
        "outputs": {"parameters": parameters, "artifacts": artifacts, "outputFile": str(folder / EXECUTOR_OUTPUT)},
    }


def _default(about: dict[str, Any]) -> Any:
    """A default as the backend hands it on: the compiler writes every number as a float."""
    return int(about["defaultValue"]) if about["parameterType"] == "NUMBER_INTEGER" else about["defaultValue"]


@functools.cache
def _interface(component: Any) -> dict[str, Any]:
    """Inputs and outputs of a component in its compiled form."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "compiled.yaml"
        compiler.Compiler().compile(component, str(target))
        (found,) = next(yaml.safe_load_all(target.read_text("utf-8")))["components"].values()
    interface: dict[str, Any] = found
    if isinstance(component, step_component.StepComponent):  # its tasks are without them
        _drop_descriptions(interface)
    return interface


def _drop_descriptions(interface: dict[str, Any]) -> None:
    for part in ("inputDefinitions", "outputDefinitions"):
        for kind in ("parameters", "artifacts"):
            for about in (interface.get(part) or {}).get(kind, {}).values():
                about.pop("description", None)


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
