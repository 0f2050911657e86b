"""The component of a training function, which runs in a TrainJob on any number of nodes.

Its inputs are the function's arguments, with their types, and parameters of `train`; its outputs are those of `train` and the values
that the function returns.
"""

from __future__ import annotations

import ast
import keyword
from collections.abc import Callable, Mapping
from typing import Any

from kfp import dsl
from kfp.dsl import PipelineTask, pipeline_channel

from trainwright.components.pipeline_values import TypedComponent, declared_type, type_of_item, value_type, with_types
from trainwright.components.train.function_outputs import output_types
from trainwright.components.train.generated_component import (
    FUNCTION_INPUTS,
    ArgumentInput,
    GeneratedFunction,
    component_of,
    with_input_types,
)
from trainwright.components.uncached import without_descriptions
from trainwright.jobs.code.argument_types import ArgumentType, convert
from trainwright.jobs.code.function_arguments import FunctionParameter, check_names, signature_of
from trainwright.jobs.code.function_source import source_of
from trainwright.jobs.request.typed_parameters import ValueType, has_large_integer
from trainwright.text.suggest import suggest

_RESERVED = {*FUNCTION_INPUTS, "run_id", "metrics", "loss_curve", "task_config"}
_INPUT_TYPES: dict[str, ValueType] = {
    "bool": "bool",
    "int": "int",
    "float": "float",
    "str": "str",
    "list": "list",
    "dict": "dict",
}


class TrainFunction(TypedComponent):
    """The component of a training function: `name`, `component_spec` and `python_func` are those of any component."""

    def __init__(self, func: Callable[..., Any], settings: Mapping[str, Any]):
        source = source_of(func)
        if source is None:
            raise ValueError("train_function decorates a function")
        self._signature = signature_of(source)
        self._settings = {name: value for name, value in settings.items() if value is not None}
        self._arguments = self._settings.pop("func_args", {})
        self._check_settings()
        self._generated = GeneratedFunction(source, func.__doc__ or "", output_types(func, self._signature), self._settings)
        large = {name: value for name, value in self._arguments.items() if has_large_integer(value)}
        base = component_of(self._generated, self._inputs_alone(), large)
        super().__init__(base.component_spec, base.python_func)
        self.__name__, self.__doc__ = func.__name__, func.__doc__

    def __call__(self, *args: Any, **kwargs: Any) -> PipelineTask:
        """Return the task of a pipeline. Raises TypeError for unknown, missing and unfit arguments."""
        if args:
            raise TypeError(f"{self.name}() takes keyword arguments only, got {len(args)} positional")
        given = {**self._settings, **kwargs}
        given.setdefault("run_id", dsl.PIPELINE_JOB_ID_PLACEHOLDER)
        named = {name: given.pop(name) for name in [*given] if name not in FUNCTION_INPUTS}
        arguments = self._with_func_args(named, given)
        if arguments is None:
            return self._task({}, given)
        self._check_arguments(arguments)
        return self._task(arguments, given)

    def _with_func_args(self, arguments: dict[str, Any], given: dict[str, Any]) -> dict[str, Any] | None:
        """Return all arguments of the function by name; None if `func_args` is known at run time only, and stays in `given`."""
        func_args = given.pop("func_args", {})
        if isinstance(func_args, Mapping):
            if twice := sorted(func_args.keys() & arguments.keys()):
                raise TypeError(f"{self.name}(): {', '.join(twice)} is given twice, in func_args too")
            return {**self._arguments, **func_args, **arguments}
        if arguments or self._arguments:
            names = ", ".join(sorted({*arguments, *self._arguments}))
            raise TypeError(f"{self.name}(): func_args is a pipeline parameter, so that {names} cannot be set beside it")
        given["func_args"] = func_args
        return None

    def _check_settings(self) -> None:
        if unknown := sorted(self._settings.keys() - FUNCTION_INPUTS.keys()):
            raise TypeError(
                f"train_function: {unknown[0]!r} is no setting of a function ({suggest(unknown[0], FUNCTION_INPUTS)})"
            )
        if not isinstance(self._arguments, Mapping):
            raise TypeError("train_function: func_args must be an object")
        if taken := [name for name in self._signature.parameters if name in _RESERVED]:
            raise TypeError(
                f"{self._signature.name}: the argument {taken[0]!r} has the name of a parameter of train; rename the argument"
            )
        if odd := [name for name in self._signature.parameters if keyword.iskeyword(name) or name == "Output"]:
            raise TypeError(f"{self._signature.name}: {odd[0]!r} cannot be the name of an input; rename the argument")
        unknown_arguments = self._arguments.keys() - self._signature.parameters.keys()
        if unknown_arguments and not self._signature.takes_others:
            self._check_arguments({**dict.fromkeys(self._signature.parameters), **self._arguments}, names_only=True)

    def _check_arguments(self, arguments: Mapping[str, Any], *, names_only: bool = False) -> None:
        try:
            check_names(self._signature, arguments)
        except ValueError as error:
            near = {name for name in arguments if name not in self._signature.parameters}
            hint = next((suggest(name, FUNCTION_INPUTS) for name in sorted(near)), "")
            hint = f"; {hint}" if hint.startswith("did you mean") and not names_only else ""
            raise TypeError(f"{error}{hint}") from None

    def _inputs_alone(self) -> tuple[ArgumentInput, ...]:
        """Return the inputs of the component without a call. An argument without a type that an input can have is none of them."""
        found = []
        for name, parameter in self._signature.parameters.items():
            of_type = _input_type(parameter)
            value = self._arguments.get(name)
            if of_type is not None and not has_large_integer(value):
                default = repr(_fitting(value, parameter)) if value is not None else _default_text(parameter, of_type)
                is_required = parameter.is_required and name not in self._arguments
                found.append(ArgumentInput(name, of_type, is_required, default))
        return tuple(found)

    def _task(self, arguments: Mapping[str, Any], given: dict[str, Any]) -> PipelineTask:
        inputs, fixed, values, run_types = [], {}, {}, {}
        for name, value in arguments.items():
            parameter = self._signature.parameters.get(name) or FunctionParameter(name, ArgumentType(), None)
            if value is None:
                fixed[name] = _fitting(None, parameter)
                continue
            of_type, values[name] = _value_and_type(value, parameter, f"{self.name}(): {name}")
            if has_large_integer(values[name]):  # an input would be a double; the program has it as it is
                fixed[name] = values.pop(name)
                continue
            inputs.append(ArgumentInput(name, of_type, True, None))
            if isinstance(value, pipeline_channel.PipelineChannel):
                run_types[name] = declared_type(value) or of_type
        rest = [one for one in self._inputs_alone() if one.name not in arguments and one.default is not None]
        if "func_args" in given:
            rest = []
        component = component_of(self._generated, (*inputs, *rest), fixed)
        all_values = {**given, **values}
        if not run_types:
            return component(**all_values)
        # kfp compares the types of inputs and values exactly; those that the step converts are compared here instead.
        task = with_input_types(component, run_types)(**all_values)
        task.component_spec = without_descriptions(component.component_spec)
        return task


def _value_and_type(value: Any, parameter: FunctionParameter, where: str) -> tuple[ValueType, Any]:
    """Return the type of an argument's input, and the value with which it is called. Raises TypeError for an unfit value."""
    wanted = _input_type(parameter)
    if isinstance(value, pipeline_channel.PipelineChannel):
        try:
            known = value_type(value)
        except TypeError as error:
            raise TypeError(f"{where}: {error}") from None
        return _type_of_run_value(known, wanted, parameter, where), value
    if not pipeline_channel.extract_pipeline_channels_from_any(value) and "{{$" not in str(value):
        try:
            value = _fitting(value, parameter)
        except ValueError as error:
            raise TypeError(f"{where}: {error}") from None
        of_type = type_of_item(value)
        if of_type is None:
            raise TypeError(f"{where}: JSON has no type {type(value).__name__}")
        return of_type, value
    of_type = type_of_item(value if not isinstance(value, tuple) else list(value))
    if of_type is None or (of_type in ("list", "dict") and wanted not in (None, of_type)):
        raise TypeError(f"{where}: expected {parameter.type}, got {type(value).__name__}")
    return of_type, with_types(value)


def _type_of_run_value(known: ValueType | None, wanted: ValueType | None, parameter: FunctionParameter, where: str) -> ValueType:
    """Return the type of an input for a value of which only the type is known. Text and numbers are converted in the step.

    An input that kfp knows as an integer cuts off decimals, so it is one for integers only.
    """
    if known is None:
        return "float" if wanted == "int" else wanted or "str"
    if wanted is None or known == wanted or known == "str":
        return known
    if {known, wanted} == {"int", "float"}:
        return "float"
    raise TypeError(f"{where}: expected {parameter.type}, got a value of type {known}")


def _fitting(value: Any, parameter: FunctionParameter) -> Any:
    if isinstance(value, tuple):
        value = list(value)
    return value if value is None and parameter.default == "None" else convert(value, parameter.type)


def _input_type(parameter: FunctionParameter) -> ValueType | None:
    """Return the type of an argument's input: of its annotation, else of its default; None if neither says one."""
    kind = parameter.type.without_none.kind
    if kind == "choice":
        types = {type_of_item(choice) for choice in parameter.type.without_none.choices}
        return types.pop() if len(types) == 1 else None
    if kind == "any" and parameter.default is not None:
        return type_of_item(_literal(parameter.default))
    return _INPUT_TYPES.get(kind)


def _default_text(parameter: FunctionParameter, of_type: ValueType) -> str | None:
    """Return the default of an input as source text; None where the function's own default applies if the input is not set."""
    value = _literal(parameter.default) if parameter.default is not None else None
    if value is None or has_large_integer(value):
        return None
    if of_type == "float" and type(value) is int:
        value = float(value)
    return repr(value) if type_of_item(value) == of_type else None


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, TypeError, SyntaxError):
        return None
