"""The values of tasks in a run on this machine, each with its type, and as the text that a server writes. Pure.

A server keeps every value as JSON and, where a task has put one into a text or an object, replaces the reference in the task's input
by the value's text. Here nothing is replaced in JSON, so quotes and backslashes arrive as they are. Rules of the server:
`driver/resolve.go` and `component/launcher_v2.go` of Kubeflow Pipelines 2.17.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import Any

from trainwright.jobs.request.typed_parameters import LARGEST_INTEGER, has_large_integer
from trainwright.text.foreign_texts import one_line

Values = dict[str, Any]
"""Parameters and artifacts by name. An artifact is a list of objects in the form of a RuntimeArtifact."""
REFERENCE = re.compile(r"\{\{\$\.(?:inputs\.parameters\['(?P<input>[^']+)'\]|[a-z_]+)\}\}")
"""In a text of a compiled pipeline: the value of an input of the task, or of the run."""
_SELECTOR = re.compile(r"parseJson\(string_value\)\[\"(.*)\"\]", re.DOTALL)
_BREAKS_JSON = re.compile(r'["\\\x00-\x1f]')
_KINDS: dict[str, tuple[type, ...]] = {
    "NUMBER_INTEGER": (int, float),
    "NUMBER_DOUBLE": (int, float),
    "BOOLEAN": (bool,),
    "LIST": (list,),
    "STRUCT": (dict,),
}
_LARGE = "an integer of 2**53 or above, which a server keeps as a double and may change"
_NOT_FINITE = "a number that is not finite, with which a step on a server fails"


class BadValue(ValueError):
    """A value that a task cannot get, or not as what it declares."""


def as_text(value: Any) -> str:
    """Return a value as a server writes it into a text: numbers without exponent, lists and objects as JSON with sorted keys."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool | None | list | dict):
        return json.dumps(value, ensure_ascii=False, sort_keys=True)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    text = format(Decimal(repr(value)), "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def restored(constant: Any) -> Any:
    """Return a constant of a compiled pipeline with its integers: kfp's compiler writes 3.0 for 3."""
    if isinstance(constant, float) and constant.is_integer() and abs(constant) < LARGEST_INTEGER:
        return int(constant)
    if isinstance(constant, dict):
        return {key: restored(value) for key, value in constant.items()}
    return [restored(value) for value in constant] if isinstance(constant, list) else constant


def typed(value: Any, of_type: str) -> Any:
    """Return a value as the type that a component declares. Text is read as JSON, where it is of that type.

    Raises BadValue for a value of another type.
    """
    kinds = _KINDS.get(of_type)
    if of_type == "STRING":
        return as_text(value)
    if kinds is None:  # types of the backend, such as the final status of a task
        return value
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            value = json.loads(value.lower()) if value.lower() in ("true", "false") else value
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise BadValue(f"expected a value of type {of_type}, got {one_line(as_text(value))[:80]!r}")
    if of_type == "NUMBER_INTEGER" and isinstance(value, float) and value.is_integer():
        return int(value)
    if of_type == "NUMBER_DOUBLE" and isinstance(value, int) and not has_large_integer(value):
        return float(value)
    return value


def filled(constant: Any, value_of: Callable[[str], Any], placeholders: Mapping[str, str]) -> Any:
    """Return a constant whose texts, at any depth, have the values of inputs and of the run in place of their references.

    Args:
        constant: What the compiled pipeline has.
        value_of: Returns the value of an input by name.
        placeholders: Values of the run, as `{{$.pipeline_job_uuid}}`.
    """
    if isinstance(constant, dict):
        return {filled(key, value_of, placeholders): filled(value, value_of, placeholders) for key, value in constant.items()}
    if isinstance(constant, list):
        return [filled(value, value_of, placeholders) for value in constant]
    if not isinstance(constant, str):
        return constant
    # One pass over the constant: a value that looks like a reference stays as it is.
    return REFERENCE.sub(
        lambda found: as_text(value_of(found["input"])) if found["input"] else placeholders.get(found[0], found[0]), constant
    )


def selected(value: Any, selector: str) -> Any:
    """Return the field of an object that a selector names. Raises BadValue without it."""
    found = _SELECTOR.fullmatch(selector)
    if found is None:
        raise BadValue(f"the selector {one_line(selector)[:80]!r} is unknown")
    return field_of(value, found[1])


def field_of(value: Any, name: str) -> Any:
    """Return a field of an object, or of one in the form of JSON text. Raises BadValue without it."""
    try:
        return typed(value, "STRUCT")[name]
    except KeyError:
        raise BadValue(f"the item {one_line(as_text(value))[:80]!r} has no {one_line(name)!r}") from None


def items_of(value: Any) -> list[Any]:
    """Return the items of a loop. Raises BadValue for what is not a list."""
    found: list[Any] = typed(value, "LIST")
    return found


def not_carried(value: Any) -> str:
    """Return what a server does not carry of a value, or an empty text."""
    if has_large_integer(value):
        return _LARGE
    return _NOT_FINITE if any(not math.isfinite(number) for number in _floats(value)) else ""


def breaks_text(value: Any) -> bool:
    """Whether a value breaks the JSON into which a server puts its text."""
    return _BREAKS_JSON.search(as_text(value)) is not None


def _floats(value: Any) -> Iterator[float]:
    if isinstance(value, float):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _floats(each)


def texts_in(value: Any) -> Iterator[str]:
    """Yield the texts in a value, at any depth, with the keys of objects."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in (*value, *value.values()) if isinstance(value, dict) else value:
            yield from texts_in(each)
