"""Checks the arguments of a training function against its signature, before anything is created, and converts them to its types.

Orchestrators pass some values as text: `False` arrives as "false", which is true. The annotations say what was meant.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from trainwright.jobs.code.argument_types import (
    ANY,
    ArgumentType,
    convert,
    reads_as_another_type,
    times_of_type,
    type_of_annotation,
)
from trainwright.jobs.code.function_source import NamedSource
from trainwright.text.suggest import suggest


@dataclass(frozen=True)
class FunctionParameter:
    """A parameter of a function that can be passed by name. `default` is its source text; None without one."""

    name: str
    type: ArgumentType
    default: str | None

    @property
    def is_required(self) -> bool:
        return self.default is None


@dataclass(frozen=True)
class FunctionSignature:
    """The parameters of a function by name, whether it takes others as `**`, and the type that it returns."""

    name: str
    parameters: Mapping[str, FunctionParameter]
    takes_others: bool
    returns: ArgumentType


@lru_cache(maxsize=64)
def signature_of(function: NamedSource) -> FunctionSignature:
    """Read a signature from the source.

    Raises ValueError for a required parameter that cannot be passed by name, or is annotated as a type that JSON does not have.
    """
    definition = [
        node for node in ast.parse(function.source).body if isinstance(node, ast.FunctionDef) and node.name == function.name
    ][-1]
    arguments = definition.args
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults: list[ast.expr | None] = [*[None] * (len(positional) - len(arguments.defaults)), *arguments.defaults]
    named: dict[str, FunctionParameter] = {}
    for node, default in [
        *zip(positional, defaults, strict=True),
        *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
    ]:
        if node not in arguments.posonlyargs:
            text = ast.unparse(default) if default is not None else None
            named[node.arg] = FunctionParameter(node.arg, type_of_annotation(node.annotation), text)
        elif default is None:
            raise ValueError(
                f"{function.name}: the parameter {node.arg!r} cannot be passed by name, as a training function requires"
            )
    if foreign := [_foreign(parameter) for parameter in named.values() if parameter.is_required and parameter.type.foreign]:
        raise ValueError(f"{function.name}: {'; '.join(foreign)}")
    return FunctionSignature(function.name, named, arguments.kwarg is not None, type_of_annotation(definition.returns))


def checked_arguments(function: NamedSource, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call, converted to the types of the function's annotations.

    Raises ValueError naming arguments that are unknown, missing, or not of their type.
    """
    check_names(signature_of(function), arguments)
    return converted_arguments(function, arguments)


def converted_arguments(function: NamedSource, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return some of the arguments of a call, converted. Raises ValueError naming all that are not of their type."""
    signature = signature_of(function)
    converted, problems = {}, []
    for name, value in arguments.items():
        try:
            converted[name] = _converted(value, name, signature)
        except ValueError as error:
            problems.append(str(error))
    if problems:
        raise ValueError("; ".join(problems))
    return converted


def check_names(signature: FunctionSignature, names: Iterable[str]) -> None:
    """Raise ValueError for an argument that is unknown, is of a type that JSON does not have, or is missing."""
    given = set(names)
    known = signature.parameters
    problems = []
    if not signature.takes_others:
        for name in sorted(given - known.keys()):
            about = suggest(name, known) if known else "it takes no arguments"
            problems.append(f"{signature.name}() has no argument {name!r} ({about})")
    problems += [_foreign(known[name]) for name in sorted(given & known.keys()) if known[name].type.foreign]
    missing = [name for name, parameter in known.items() if parameter.is_required and name not in given]
    if missing:
        problems.append(f"{signature.name}() needs the argument{'s' * (len(missing) > 1)} {', '.join(map(repr, missing))}")
    if problems:
        raise ValueError("; ".join(problems))


def times_of(function: NamedSource, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return which of the arguments are dates and durations, or have them as entries, as `times_of_type` says it."""
    parameters = signature_of(function).parameters
    found = {name: times_of_type(parameters[name].type) for name in arguments if name in parameters}
    return {name: times for name, times in found.items() if times is not None}


def ambiguous_arguments(function: NamedSource, arguments: Mapping[str, Any]) -> list[str]:
    """Return the arguments whose text may be another type's, and whose parameter has no annotation that says which."""
    parameters = signature_of(function).parameters
    return [
        name
        for name, value in arguments.items()
        if isinstance(value, str) and (name not in parameters or parameters[name].type == ANY) and reads_as_another_type(value)
    ]


def is_ambiguous(function: NamedSource, arguments: Mapping[str, Any], path: Sequence[Any]) -> bool:
    """Whether the text at a place in the arguments may be another type's, and no annotation says which."""
    parameter, value = signature_of(function).parameters.get(path[0]), arguments.get(path[0])
    wanted = parameter.type if parameter is not None else ANY
    for key in path[1:]:
        if wanted.kind != "any":  # of a union, only all entries of a list or object together say which it is
            wanted = wanted.without_none.entry or ANY
        if not isinstance(value, Mapping | list | tuple):
            return False  # the whole was converted
        value = value[key]
    return isinstance(value, str) and wanted == ANY and reads_as_another_type(value)


def _foreign(parameter: FunctionParameter) -> str:
    return (
        f"the parameter {parameter.name!r} is annotated as {parameter.type.foreign}, and arguments are JSON; annotate it as text, a "
        "number, a list or a dict, and convert it in the function"
    )


def _converted(value: Any, name: str, signature: FunctionSignature) -> Any:
    parameter = signature.parameters.get(name)
    if parameter is not None and value is None and parameter.default == "None":
        return value
    try:
        return convert(value, parameter.type if parameter is not None else ANY)
    except ValueError as error:
        message = str(error)
        raise ValueError(f"{name}{message}" if message.startswith("[") else f"{name}: {message}") from None
