"""The step of a training function's component: its inputs become arguments of the function, and its result becomes outputs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from trainwright.jobs.code.argument_types import ArgumentType, Kind, convert
from trainwright.jobs.code.function_arguments import signature_of
from trainwright.jobs.code.function_source import NamedSource
from trainwright.jobs.request.setting_values import parse_structure
from trainwright.jobs.request.typed_parameters import marked
from trainwright.steps.step_end import explained_end


def train_parameters(given: Mapping[str, Any], program: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of `train` from the inputs of a function's component.

    Args:
        given: The inputs by name.
        program: The function's source, the names of inputs that are `arguments` of it, `fixed` arguments, and `outputs`.
    """
    function = NamedSource.model_validate(program["function"])
    names = program["arguments"]
    parameters = signature_of(function).parameters
    arguments = dict(program["fixed"])
    for name in names:
        value = given[name]
        if value is not None or (name in parameters and parameters[name].is_required):
            arguments[name] = marked(value, "str") if isinstance(value, str) else value
    others = {name: value for name, value in given.items() if name not in names}
    return {**others, "func": function.source, "func_args": _with_func_args(arguments, given.get("func_args") or {})}


def _with_func_args(arguments: dict[str, Any], func_args: Any) -> dict[str, Any]:
    with explained_end():
        others = parse_structure(func_args)
        if not isinstance(others, dict):
            raise ValueError(f"func_args: expected an object, got {str(others)[:80]!r}")
        if twice := sorted(others.keys() & arguments.keys()):
            raise ValueError(f"func_args: {', '.join(twice)}: there is an input of that name; set the input instead")
    return {**others, **arguments}


def own_outputs(results: Mapping[str, Any], program: Mapping[str, Any]) -> list[Any]:
    """Return the outputs that the function declares, from its result. A number that is not finite is written as null.

    Ends the step with exit code 1 if the result lacks one, or has one of another type.
    """
    outputs: Mapping[str, Kind] = program["outputs"]
    if not outputs:
        return []
    name = program["function"]["name"]
    with explained_end():
        found = _by_name(results, list(outputs), name)
        return [_output(found[key], of_type, f"{name}: the output {key!r}") for key, of_type in outputs.items()]


def _by_name(results: Mapping[str, Any], names: list[str], function: str) -> Mapping[str, Any]:
    if names == ["Output"]:
        if set(results) != {"value"}:
            what = f"an object with {', '.join(results)}" if results else "nothing"
            raise ValueError(f"{function}: the function returned {what}, and not one value, as its annotation says")
        return {"Output": results["value"]}
    value = results.get("value")
    if set(results) == {"value"} and isinstance(value, list) and len(value) == len(names):
        return dict(zip(names, value, strict=True))
    if missing := [name for name in names if name not in results]:
        raise ValueError(f"{function}: the returned value has no {', '.join(map(repr, missing))}, as its annotation says")
    return results


def _output(value: Any, of_type: Kind, where: str) -> Any:
    if value is None and of_type == "float":
        return math.nan  # it was not finite, and is written as null with a warning
    try:
        if isinstance(value, str) and of_type != "str":
            raise ValueError(f"expected {ArgumentType(of_type)}, got {value[:80]!r}")
        return convert(value, ArgumentType(of_type))
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
