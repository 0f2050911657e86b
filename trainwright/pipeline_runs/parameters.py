"""The parameters of a pipeline, and values for them: checked by name and type before anything is submitted. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from trainwright.api.objects import Obj
from trainwright.jobs.credentials.secret_detection import literal_problems
from trainwright.jobs.request.typed_parameters import LARGEST_INTEGER
from trainwright.pipeline_runs.errors import BadParameters
from trainwright.text.suggest import suggest
from trainwright.text.text_input import Unreadable, read_json

_TYPE_NAMES = {
    "STRING": "str",
    "NUMBER_INTEGER": "int",
    "NUMBER_DOUBLE": "float",
    "BOOLEAN": "bool",
    "LIST": "list",
    "STRUCT": "dict",
}
_INTEGER = re.compile(r"[+-]?[0-9]{1,20}")
_FLOAT = re.compile(r"[+-]?(?:[0-9]{1,400}\.?[0-9]{0,400}|\.[0-9]{1,400})(?:[eE][+-]?[0-9]{1,4})?")
_BOOLEANS = {"true": True, "false": False}
_PLACEHOLDER = re.compile(r"\{\{\$|\[\[(?:Index|ScheduledTime|CurrentTime|RunUUID)\b")
_MAX_BYTES = 1024 * 1024
"""A run is stored in a Workflow, for which etcd has 1.5 MiB, and with which the compiled pipeline is."""
_MOST_SHOWN = 60


@dataclass(frozen=True)
class ParameterSpec:
    """A parameter as a pipeline declares it; `type` is the name that kfp has for it in a signature."""

    name: str
    type: str
    is_required: bool
    default: Any = None
    description: str = ""
    choices: tuple[Any, ...] = field(default=())


def parameter_specs(inputs: Obj) -> dict[str, ParameterSpec]:
    """Return the parameters in the inputDefinitions of a compiled pipeline; its input artifacts have the type `artifact`."""
    found = {
        name: ParameterSpec(
            name,
            _TYPE_NAMES.get(declared["parameterType"], str(declared["parameterType"])),
            not (declared.get("isOptional") or "defaultValue" in declared),
            declared.get("defaultValue"),
            declared.get("description", ""),
            tuple(declared.get("literals", ())),
        )
        for name, declared in inputs.get("parameters", {}).items()
    }
    for name, declared in inputs.get("artifacts", {}).items():
        found[name] = ParameterSpec(name, "artifact", not declared.get("isOptional"))
    return found


def given_values(specs: Mapping[str, ParameterSpec], texts: Iterable[str], document: Any = None) -> dict[str, Any]:
    """Return the values of a run: those of a document, then `KEY=VALUE` texts, parsed by the type of the parameter.

    A list or dict in a text is JSON. Raises BadParameters with every problem.
    """
    problems: list[str] = []
    unknown: list[str] = []
    values: dict[str, Any] = {}
    if document is not None and not isinstance(document, dict):
        problems.append("the parameters of a file are an object of names and values")
        document = None
    for name, value in (document or {}).items():
        if name in specs:
            _collect(values, problems, _checked, specs[name], value)
        else:
            unknown.append(_unknown(name, specs))
    seen: set[str] = set()
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            problems.append(f"{_shown(text)} is not of the form KEY=VALUE")
        elif name not in specs:
            unknown.append(_unknown(name, specs))
        elif name in seen:
            problems.append(f"{name}: given twice")
        else:
            seen.add(name)
            _collect(values, problems, _parsed, specs[name], value)
    if unknown:
        unknown.append(f"its parameters are {', '.join(sorted(specs))}" if specs else "it has no parameters")
    if unknown or problems:
        raise BadParameters([*problems, *unknown])
    return values


def check_values(specs: Mapping[str, ParameterSpec], values: Mapping[str, Any]) -> None:
    """Check what a run as a whole needs: no required parameter is missing, no value is a credential, and all are small enough.

    Raises BadParameters.
    """
    missing = [f"{spec.name} ({spec.type})" for spec in specs.values() if spec.is_required and spec.name not in values]
    problems = [f"required, but not given: {', '.join(missing)}"] if missing else []
    problems += map(str, literal_problems(dict(values)))
    if len(json.dumps(values)) > _MAX_BYTES:
        problems.append(
            f"the parameters are larger than {_MAX_BYTES // 2**20} MiB; put large values in a store, and pass their URI"
        )
    if problems:
        raise BadParameters(problems)


def check_submitted(values: Mapping[str, Any]) -> None:
    """Refuse placeholders, which a server does not replace in the parameters of a run. Raises BadParameters."""
    if problems := [
        f"{name}: placeholders such as {found[0]}... stay as they are in parameters of a run; "
        "a pipeline can use dsl.PIPELINE_JOB_ID_PLACEHOLDER inside"
        for name, value in values.items()
        if (found := _PLACEHOLDER.search(json.dumps(value)))
    ]:
        raise BadParameters(problems)


def _unknown(name: str, specs: Mapping[str, ParameterSpec]) -> str:
    near = suggest(name[:_MOST_SHOWN], specs)
    hint = f" ({near})" if near.startswith("did you mean") else ""
    return f"{_shown(name)} is not a parameter of this pipeline{hint}"


def _collect(
    values: dict[str, Any], problems: list[str], convert: Callable[[ParameterSpec, Any], Any], spec: ParameterSpec, given: Any
) -> None:
    try:
        values[spec.name] = convert(spec, given)
    except ValueError as error:
        problems.append(f"{spec.name}: {error}")


def _parsed(spec: ParameterSpec, text: str) -> Any:
    """Return the value of a text. Raises ValueError."""
    if spec.type in ("list", "dict"):
        try:
            return _checked(spec, read_json(text))
        except Unreadable as error:
            raise ValueError(f"expected a JSON {spec.type}: {error.message}") from None
    value: Any = text
    if spec.type == "int" and _INTEGER.fullmatch(text):
        value = int(text)
    elif spec.type == "float" and _FLOAT.fullmatch(text):
        value = float(text)
    elif spec.type == "bool":
        value = _BOOLEANS.get(text.lower(), text)
    return _checked(spec, value)


def _checked(spec: ParameterSpec, value: Any) -> Any:
    """Return a value as the type of the parameter. Raises ValueError."""
    if spec.type == "int" and isinstance(value, float) and value.is_integer():
        value = int(value)
    if spec.type == "float" and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    kinds = {"str": str, "int": int, "float": float, "bool": bool, "list": list, "dict": dict}
    kind = kinds.get(spec.type)
    if kind is None:
        raise ValueError(f"is an input of the type {spec.type}, which cannot be given as a parameter")
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ValueError(f"expected {spec.type}, got {_shown(value)}")
    if isinstance(value, int | float) and abs(value) > (LARGEST_INTEGER if kind is int else 1.7e308):
        raise ValueError(f"{_shown(value)} is larger than any {spec.type} that a server keeps exactly")
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ValueError("is not valid text") from None
    if spec.choices and value not in spec.choices:
        raise ValueError(f"expected one of {', '.join(map(str, spec.choices))}, got {_shown(value)}")
    return value


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."
