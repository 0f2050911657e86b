"""Arguments of a training function in a DAG: checked when the DAG is parsed, as far as they are known then.

A template renders to text, and the type of an XCom is known when the task runs: the function's annotations say what they must be.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_TEMPLATE_SIGNS = ("{{", "{%")


def check_arguments(func: Any, arguments: Any) -> None:
    """Check the arguments of a training function as far as they are known.

    Raises ValueError for names that are unknown or missing, and for values of a wrong type that are not templates.
    """
    from trainwright.jobs.code.function_arguments import check_names, converted_arguments, signature_of
    from trainwright.jobs.code.function_source import source_of

    function = source_of(func)
    if function is None or not isinstance(arguments, Mapping):
        return
    try:
        check_names(signature_of(function), arguments)
        converted_arguments(function, {name: value for name, value in arguments.items() if _is_known(value)})
    except ValueError as error:
        raise ValueError(f"func_args: {error}") from None


def check_rendered(func: Any, arguments: Any, templated: frozenset[str]) -> None:
    """Raise ValueError for the rendered text of a template that may be of another type, if no annotation says which."""
    from trainwright.jobs.code.function_arguments import ambiguous_arguments
    from trainwright.jobs.code.function_source import source_of

    function = source_of(func)
    if function is None or not isinstance(arguments, Mapping):
        return
    for name in ambiguous_arguments(function, arguments):
        if name in templated:
            raise ValueError(
                f"func_args.{name}: the text that the template rendered to may be meant as another type; annotate the parameter "
                f"in {function.name}()"
            )


def templated_arguments(arguments: Any) -> frozenset[str]:
    """Return the names of the arguments that are templates."""
    if not isinstance(arguments, Mapping):
        return frozenset()
    return frozenset(name for name, value in arguments.items() if _is_template(value))


def as_json(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments as JSON has them. Raises TypeError naming an argument that it cannot have."""
    found = {}
    for name, value in arguments.items():
        try:
            found[name] = json.loads(json.dumps(value))
        except (TypeError, ValueError, RecursionError) as error:
            raise TypeError(f"func_args.{name}: {error}; pass numbers, text, lists or dicts") from None
    return found


def _is_template(value: Any) -> bool:
    return isinstance(value, str) and any(sign in value for sign in _TEMPLATE_SIGNS)


def _is_known(value: Any) -> bool:
    """Whether a value is final when the DAG is parsed: no template, and no result of another task, at any depth."""
    if isinstance(value, Mapping):
        return all(map(_is_known, value.values()))
    if isinstance(value, list | tuple):
        return all(map(_is_known, value))
    return value is None or (isinstance(value, str | int | float) and not _is_template(value))
