"""Values of pipeline parameters inside objects and lists keep their types: Kubeflow Pipelines puts them in as text.

When a pipeline is compiled, such a value is marked with its type; the step reads the text as that type. So are values that would
arrive as other ones: large integers, and texts with `$$`. Pure.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Literal
from urllib.parse import quote, unquote

from trainwright.jobs.code.function_arguments import ambiguous_arguments
from trainwright.jobs.code.function_source import source_of
from trainwright.jobs.request.invalid_settings import InvalidSettings
from trainwright.jobs.request.setting import Settings, settings_of
from trainwright.jobs.request.setting_values import floats_to_integers, parse_structure

MARK = "trainwright.dev/type"
ValueType = Literal["int", "float", "bool", "str", "list", "dict", "quoted"]
"""What JSON has; `quoted` is a text in percent-encoding."""
LARGEST_INTEGER = 2**53
"""Kubeflow Pipelines keeps numbers as doubles: integers from here on may arrive as another one."""
_MAX_DEPTH = 100
_KEPT = " /:;,=?@&()[]<>|*!"
"""Characters of a quoted text that stay as they are, so that it can be read; neither `$` nor a quote nor a backslash."""


def marked(value: Any, of_type: ValueType) -> dict[str, Any]:
    """Return a value with its type."""
    return {MARK: of_type, "value": value}


def is_marked(value: Mapping[str, Any]) -> bool:
    """Whether an object is a value with its type."""
    return value.keys() == {MARK, "value"}


def has_large_integer(value: Any) -> bool:
    """Whether a value is or contains an integer that Kubeflow Pipelines may change."""
    if isinstance(value, Mapping):
        return any(map(has_large_integer, value.values()))
    if isinstance(value, list | tuple):
        return any(map(has_large_integer, value))
    return isinstance(value, int) and abs(value) >= LARGEST_INTEGER


def has_doubled_dollar(value: Any) -> bool:
    """Whether a value is or contains a text with `$$`: the arguments of pods carry all values, and Kubernetes makes it `$` there.

    See https://github.com/kubeflow/pipelines/issues/10370.
    """
    if isinstance(value, Mapping):
        return any(map(has_doubled_dollar, (*value, *value.values())))
    if isinstance(value, list | tuple):
        return any(map(has_doubled_dollar, value))
    return isinstance(value, str) and "$$" in value


def typed_parameters(cls: type[Settings], parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a step that were given, without marks, each marked value with its type.

    `cls` has the settings among them.
    Raises InvalidSettings naming the parameter if a text is not of its type, and for an argument of a function whose text may be of
    another type, where neither a mark nor an annotation tells.
    """
    read = {name: _structure(value, name) for name, value in given_parameters(cls, parameters).items()}
    if problem := _ambiguous(read):
        raise InvalidSettings([problem])
    return {name: _typed(value, name, cls) for name, value in read.items()}


def with_changing_marked(value: Any) -> Any:
    """Return an object or list whose integers and texts that a server would change are text marked with its type."""
    if isinstance(value, Mapping):
        return {name: with_changing_marked(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [with_changing_marked(one) for one in value]
    if isinstance(value, str) and ("$$" in value or "$(" in value):  # a reference, if the pod has a variable of that name
        return marked(quote(value, safe=_KEPT), "quoted")
    return marked(str(value), "int") if has_large_integer(value) else value


def unmarked(value: Any, path: str) -> Any:
    """Return an object or list without marks, each marked value with its type. Raises InvalidSettings for one of another type."""
    return _unmarked(value, path, as_text=False)


def given_parameters(cls: type[Settings], parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a function that were given: those that differ from their defaults, as no signature can tell more."""
    known = settings_of(cls)
    return {name: value for name, value in parameters.items() if name not in known or _is_given(value, known[name].default)}


def _is_given(value: Any, default: Any) -> bool:
    if default is None or default is ...:  # kfp has no word for None: an empty text or 0 stands for it
        return value not in ("", None) and (default is ... or value != 0)
    return value is not None and value != default


def _typed(value: Any, name: str, cls: type[Settings]) -> Any:
    one = settings_of(cls).get(name)
    if one is not None and one.of is not None and isinstance(value, dict) and not is_marked(value):
        texts = {each for each, of_group in settings_of(one.of).items() if of_group.has_texts}
        return {each: _unmarked(entry, f"{name}.{each}", as_text=each in texts) for each, entry in value.items()}
    return _unmarked(value, name, as_text=one is not None and one.has_texts)


def _structure(value: Any, name: str) -> Any:
    """Return an object or list with the values of pipeline parameters, which kfp passes as text, and integers as floats."""
    if name == "func_args" and isinstance(value, Mapping):
        return floats_to_integers(value)
    if not isinstance(value, str) or not (MARK in value or (name == "func_args" and value.strip())):
        return value
    try:
        return parse_structure(value)
    except ValueError as error:
        hint = ""
        if MARK in value:
            hint = ": a value with quotes inside it does not fit into an object here; pass the object as one pipeline parameter"
        raise InvalidSettings([(name, f"{error}{hint}")]) from None


def _unmarked(value: Any, path: str, *, as_text: bool, depth: int = 0) -> Any:
    if depth > _MAX_DEPTH:
        raise InvalidSettings([(path[:200], f"more than {_MAX_DEPTH} levels deep")])
    if isinstance(value, dict):
        if is_marked(value):
            return _read(value["value"], str(value[MARK]), path, as_text=as_text)
        return {key: _unmarked(one, f"{path}.{key}", as_text=as_text, depth=depth + 1) for key, one in value.items()}
    if isinstance(value, list):
        return [_unmarked(one, f"{path}[{at}]", as_text=as_text, depth=depth + 1) for at, one in enumerate(value)]
    return value


def _read(value: Any, of_type: str, path: str, *, as_text: bool) -> Any:
    """Return a value as its type. An item of a loop has the type of the loop's first item: of an integer's, it may be any number."""
    text = value if isinstance(value, str) else json.dumps(value)
    if of_type == "quoted":
        return unquote(text, errors="strict")
    try:
        if of_type in ("int", "float"):
            number = _number(text, of_type)
            return (str(number) if isinstance(number, int) else text) if as_text else number
        if of_type == "bool" and not as_text:
            return {"true": True, "false": False}[text.strip().lower()]
        if of_type in ("list", "dict") and isinstance(value, str):
            return json.loads(value)
    except (ValueError, KeyError, OverflowError):
        raise InvalidSettings([(path, f"expected a value of type {of_type}")]) from None  # it may be a credential
    return text if as_text and not isinstance(value, list | dict) else value


def _number(text: str, of_type: str) -> int | float:
    try:
        number: int | float = int(text)
    except ValueError:
        number = float(text)
    if not math.isfinite(number):
        raise ValueError
    return int(number) if of_type == "int" and number == int(number) else number


def _ambiguous(parameters: Mapping[str, Any]) -> tuple[str, str] | None:
    arguments = parameters.get("func_args")
    try:
        function = source_of(parameters.get("func"))
        if function is None or not isinstance(arguments, dict):
            return None
        names = ambiguous_arguments(function, arguments)
    except ValueError:  # the request says what is wrong with the function
        return None
    if not names:
        return None
    may_be = f"the text for {', '.join(map(repr, names))} may be meant as another type"
    return f"func_args.{names[0]}", f"{may_be}; annotate the parameter in {function.name}()"
