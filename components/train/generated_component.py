"""Generates the component of a training function: kfp reads its inputs and outputs from a Python function, which is written here.

That function calls `train`, which is in the image, with the training function's source and arguments.
"""

from __future__ import annotations

import copy
import linecache
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

from kfp import dsl
from kfp.dsl.structures import InputSpec

from trainwright.components.pipeline_values import TypedComponent
from trainwright.components.step import travelling_step
from trainwright.components.train.component import train
from trainwright.jobs.code.function_source import NamedSource
from trainwright.jobs.request.typed_parameters import ValueType

_OTHER_PROGRAMS = {"func", "builtin", "settings", "command", "args", "code", "manifest"}
FUNCTION_INPUTS: Mapping[str, InputSpec] = {
    name: spec for name, spec in train.component_spec.inputs.items() if name not in _OTHER_PROGRAMS and name != "task_config"
}
"""The parameters of `train` that a function's component has as well: all but those of other programs."""
_TYPES = {
    "String": "str",
    "Integer": "int",
    "Float": "float",
    "Boolean": "bool",
    "List": "list",
    "Dict": "dict",
}


class ArgumentInput(NamedTuple):
    """An input for an argument of the function. `default` is source text; without one, an optional input is None if it is not set."""

    name: str
    type: ValueType
    is_required: bool
    default: str | None


@dataclass(frozen=True)
class GeneratedFunction:
    """What the component of a function is generated from, besides its inputs: `settings` are the defaults of parameters of `train`."""

    function: NamedSource
    description: str
    outputs: Mapping[str, ValueType]
    settings: Mapping[str, Any]


def component_of(
    generated: GeneratedFunction, inputs: tuple[ArgumentInput, ...], fixed: Mapping[str, Any] = {}
) -> TypedComponent:
    """Return a component with these inputs for arguments; `fixed` are further arguments."""
    program = {
        "function": generated.function.model_dump(),
        "arguments": [one.name for one in inputs],
        "fixed": dict(fixed),
        "outputs": dict(generated.outputs),
    }
    name = generated.function.name
    text = _source(f"run_{name}", program, _signature(generated, inputs), generated.outputs)
    component: TypedComponent = travelling_step(_defined(text, f"run_{name}"))
    spec = component.component_spec
    spec.name = component.name = name.strip("_").replace("_", "-").lower() or name
    spec.description = component.description = _description(generated.description) or None
    for known, about in ((spec.inputs, train.component_spec.inputs), (spec.outputs, train.component_spec.outputs)):
        for key in known.keys() & about.keys():
            known[key].description = about[key].description
    return component


def with_input_types(component: TypedComponent, types: Mapping[str, ValueType]) -> TypedComponent:
    """Return the component with other types of these inputs."""
    kfp_names = {of_type: name for name, of_type in _TYPES.items()}
    spec = copy.copy(component.component_spec)
    spec.inputs = {
        name: replace(one, type=kfp_names[types[name]]) if name in types else one
        for name, one in component.component_spec.inputs.items()
    }
    return TypedComponent(spec, component.python_func)


def _signature(generated: GeneratedFunction, inputs: tuple[ArgumentInput, ...]) -> list[str]:
    required = ["run_id: str", "metrics: dsl.Output[dsl.Metrics]", "loss_curve: dsl.Output[dsl.HTML]"]
    required += [f"{one.name}: {one.type}" for one in inputs if one.is_required]
    optional = [
        f"{one.name}: {one.type} = {one.default}" if one.default is not None else f"{one.name}: Optional[{one.type}] = None"
        for one in inputs
        if not one.is_required
    ]
    for name, spec in FUNCTION_INPUTS.items():
        if name != "run_id":
            value = generated.settings.get(name, spec.default)
            optional.append(f"{name}: {_TYPES[str(spec.type)]} = {list(value) if isinstance(value, tuple) else value!r}")
    return [*required, *optional, "task_config: dsl.TaskConfig = None"]


def _source(name: str, program: Mapping[str, Any], signature: list[str], outputs: Mapping[str, ValueType]) -> str:
    fields = [(key, _TYPES[str(spec.type)]) for key, spec in train.component_spec.outputs.items() if not _is_artifact(spec)]
    returned = ", ".join(f'("{key}", {of_type})' for key, of_type in [*fields, *outputs.items()])
    lines = [
        f"def {name}(",
        *[f"    {one}," for one in signature],
        f') -> NamedTuple("Outputs", [{returned}]):',
        "    given = dict(locals())",
        "",
        "    from trainwright.components.train.component import train",
        "    from trainwright.steps.function_step import own_outputs, train_parameters",
        "",
        f"    program = {program!r}",
        "    values = train(**train_parameters(given, program))",
        "    return (*values, *own_outputs(values[3], program))",
    ]
    return "\n".join(lines) + "\n"


def _is_artifact(spec: Any) -> bool:
    return "@" in str(spec.type)


@cache
def _defined(text: str, name: str) -> Any:
    """Define a function from its source, which `inspect` finds as that of a file."""
    import typing

    file = f"<{name} {abs(hash(text)):x}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    module: dict[str, Any] = {**vars(typing), "dsl": dsl, "__name__": __name__}
    exec(compile(text, file, "exec", dont_inherit=True), module)  # noqa: S102 (kfp reads a signature from a function only)
    return module[name]


def _description(docstring: str) -> str:
    import inspect

    return inspect.cleandoc(docstring)
