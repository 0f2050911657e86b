"""Arguments of a training function in a DAG: checked when the DAG is parsed, as far as they are known then.

A template renders to text, and the type of an XCom is known when the task runs: the function's annotations say what they must be.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Path = tuple[Any, ...]
"""The name of an argument, and keys and numbers of entries in it."""
_TEMPLATE_SIGNS = ("{{", "{%")


def check_arguments(func: Any, arguments: Any) -> Any:
    """Check the arguments of a training function as far as they are known, and return them with these as JSON has them.

    Raises ValueError for names that are unknown or missing, and for values that are not templates and of a wrong type, or of one that
    JSON does not have.
    """
    from trainwright.jobs.code.function_arguments import check_names, converted_arguments, signature_of
    from trainwright.jobs.code.function_source import source_of

    function = source_of(func)
    if function is None or not isinstance(arguments, Mapping):
        return arguments
    try:
        check_names(signature_of(function), arguments)
        known = converted_arguments(function, {name: value for name, value in arguments.items() if _is_known(value)})
        return {**arguments, **known}
    except ValueError as error:
        raise ValueError(f"func_args: {error}") from None


def check_rendered(func: Any, arguments: Any, templated: frozenset[Path]) -> None:
    """Raise ValueError for the rendered text of a template that may be of another type, if no annotation says which."""
    from trainwright.jobs.code.function_arguments import is_ambiguous
    from trainwright.jobs.code.function_source import source_of

    function = source_of(func)
    if function is None or not isinstance(arguments, Mapping):
        return
    for path in sorted(templated, key=str):
        if is_ambiguous(function, arguments, path):
            name = "".join([str(path[0]), *(f"[{key!r}]" for key in path[1:])])
            raise ValueError(
                f"func_args.{name}: the text that the template rendered to may be meant as another type; annotate the parameter "
                f"in {function.name}()"
            )


def templated_arguments(arguments: Any) -> frozenset[Path]:
    """Return the places of templates in the arguments."""
    return frozenset(_templates(arguments, ())) if isinstance(arguments, Mapping) else frozenset()


def _templates(value: Any, path: Path) -> Iterator[Path]:
    if isinstance(value, Mapping | list | tuple):
        for key, one in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from _templates(one, (*path, key))
    elif _is_template(value):
        yield path


def _is_template(value: Any) -> bool:
    return isinstance(value, str) and any(sign in value for sign in _TEMPLATE_SIGNS)


def _is_known(value: Any) -> bool:
    """Whether a value is final when the DAG is parsed: no template, and no object of Airflow for a result, at any depth."""
    if isinstance(value, Mapping):
        return all(map(_is_known, value.values()))
    if isinstance(value, list | tuple):
        return all(map(_is_known, value))
    return not _is_template(value) and type(value).__module__.partition(".")[0] != "airflow"
