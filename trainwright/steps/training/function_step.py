"""The step of a training function's component: kfp's executor of `train`, with other inputs and further outputs.

Inputs of the component that are arguments of the function become `func_args`, and the result of the function becomes outputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from kfp.dsl.executor import Executor

from trainwright.jobs.code.argument_types import ArgumentType, Kind, convert
from trainwright.jobs.code.function_arguments import signature_of
from trainwright.jobs.code.function_source import NamedSource
from trainwright.jobs.request.setting_values import parse_structure
from trainwright.jobs.request.typed_parameters import marked
from trainwright.steps.ends.step_end import explained_end

PROGRAM = {"function", "arguments", "fixed", "settings", "outputs"}
"""Of a component: the function's source, the names of inputs that are arguments of it, fixed arguments, settings of `train` without an
input or with that default, and the types of its outputs.
"""
_TYPES = {"bool": bool, "int": int, "float": float, "str": str, "list": list, "dict": dict}


class FunctionExecutor(Executor):  # type: ignore[misc]
    """Runs `train`, and writes the outputs of the function with those of `train`."""

    def __init__(self, given: Mapping[str, Any], train: Callable[..., Any], program: Mapping[str, Any]):
        super().__init__(given, train)
        self._program = program

    def write_executor_output(self, func_output: Any = None) -> Any:
        """Write all outputs. Ends the step with exit code 1 if the result lacks one, or has one of another type."""
        results = func_output[self.return_annotation._fields.index("results")]
        for name, value in own_outputs(results, self._program).items():
            self.handle_single_return_value(name, _TYPES[self._program["outputs"][name]], value)
        return super().write_executor_output(func_output)


def train_input(given: Mapping[str, Any], program: Mapping[str, Any]) -> dict[str, Any]:
    """Return the input of kfp's executor for `train`, from that of a function's component. Ends the step for unfit `func_args`."""
    function = NamedSource.of(program["function"])
    parameters = signature_of(function).parameters
    values = dict(given["inputs"].get("parameterValues") or {})
    arguments = dict(program["fixed"])
    for name in program["arguments"]:
        value = values.pop(name, None)
        # Without a value, an optional argument has the function's own default, unless the decorator has fixed one.
        if value is not None or (name not in arguments and name in parameters and parameters[name].is_required):
            arguments[name] = value
    texts = {name: marked(value, "str") if isinstance(value, str) else value for name, value in arguments.items()}
    with explained_end():
        others = parse_structure(values.get("func_args") or {})
        if not isinstance(others, dict):
            raise ValueError(f"func_args: expected an object, got {str(others)[:80]!r}")
        if twice := sorted(others.keys() & texts.keys()):
            raise ValueError(f"func_args: {', '.join(twice)}: there is an input of that name; set the input instead")
    func_args = {**others, **texts}
    values = {**program["settings"], **values, "func": function.source, "func_args": func_args}
    outputs = given["outputs"].get("parameters") or {}
    return {
        **given,
        "inputs": {**given["inputs"], "parameterValues": values},
        "outputs": {
            **given["outputs"],
            "parameters": {name: outputs[name] for name in outputs if name not in program["outputs"]},
        },
    }


def own_outputs(results: Mapping[str, Any], program: Mapping[str, Any]) -> dict[str, Any]:
    """Return the outputs that the function declares, from its result. A number that is not finite is NaN.

    Ends the step with exit code 1 if the result lacks one, or has one of another type.
    """
    outputs: Mapping[str, Kind] = program["outputs"]
    name = program["function"]["name"]
    if not outputs or outputs == {"Output": "dict"}:
        return {output: dict(results) for output in outputs}
    with explained_end():
        found = _by_name(results, list(outputs), name)
        return {key: _output(found[key], of_type, f"{name}: the output {key!r}") for key, of_type in outputs.items()}


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
