"""Command-line options for the settings of a training step, generated from `TrainRequest`, so that they match the KFP component
and the Airflow operator."""

from __future__ import annotations

import ast
import functools
import inspect
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, get_origin

import typer

from trainwright.api.errors import BadRequest
from trainwright.api.json_reader import NotJson, read_json
from trainwright.jobs.request.function_source import NamedSource, lines_of, source_of
from trainwright.jobs.request.setting_values import parse_text
from trainwright.jobs.request.train_request import groups

_WAIT_SETTINGS = {
    "fail_if_stuck",
    "fail_on_divergence",
    "log_bytes",
    "logs",
    "lost_node_timeout_seconds",
    "on_cancel",
    "queue_timeout_seconds",
    "run_timeout_seconds",
    "start_timeout_seconds",
    "waiter_lease_seconds",
}
EXCLUDED_SETTINGS = frozenset({"manifest", "resume", "resume_secret"} | _WAIT_SETTINGS)
"""Settings for which commands define their own options: `-f`, and those of waiting."""
_LISTS = ("command", "args", "packages_to_install", "pip_index_urls")
_MAPPING_HINT = "KEY=VALUE, repeatable, or a JSON object. "
_LIST_HINT = "Shell-quoted words in one argument, or a JSON list. "


def with_settings(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add an option for each setting to a command, whose parameter `settings` receives the given values by name."""
    own = inspect.signature(command, eval_str=True)
    options = [_parameter(group, name, field) for group, fields in groups().items() for name, field in fields.items()]
    added = [option for option in options if option.name not in EXCLUDED_SETTINGS]

    @functools.wraps(command)
    def run(**given: Any) -> Any:
        settings = {option.name: given.pop(option.name) for option in added}
        provided = {name: value for name, value in settings.items() if value not in (None, [])}
        return command(**given, settings=provided)

    kept = [parameter for parameter in own.parameters.values() if parameter.name != "settings"]
    run.__signature__ = own.replace(parameters=[*kept, *added])  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in (*kept, *added)}
    return run


def setting_values(settings: dict[str, Any]) -> dict[str, Any]:
    """Convert option values for `TrainRequest`. Raises BadRequest naming the option."""
    return {name: _value(name, value) for name, value in settings.items()}


def _parameter(group: str, name: str, field: Any) -> inspect.Parameter:
    default = field.get_default(call_default_factory=True)
    hint = _MAPPING_HINT if isinstance(default, dict) else _LIST_HINT if name in _LISTS else ""
    if name == "func":
        hint = "FILE.py:NAME. "
    kind: Any = list[str] | None if isinstance(default, dict) else int | None if _is_number(field) else str | None
    option = typer.Option(f"--{name.replace('_', '-')}", help=hint + field.description, rich_help_panel=group.capitalize())
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind, option])


def _is_number(field: Any) -> bool:
    return field.annotation is int or (get_origin(field.annotation) is not None and "int" in str(field.annotation).split("|")[0])


def _value(name: str, value: Any) -> Any:
    try:
        if name == "func":
            return _function(value)
        if isinstance(value, list):
            return _mapping(name, value)
        if name in _LISTS:
            return parse_text(value) if value.lstrip().startswith("[") else shlex.split(value)
    except OSError as error:
        raise BadRequest(f"--{name.replace('_', '-')}: {error.filename}: {error.strerror}") from None
    except ValueError as error:
        raise BadRequest(f"--{name.replace('_', '-')}: {error}") from None
    return value


def _mapping(name: str, texts: list[str]) -> dict[str, Any]:
    """Merge `KEY=VALUE` texts and JSON objects; values of settings and func_args are parsed as JSON if possible."""
    result: dict[str, Any] = {}
    for text in texts:
        if text.lstrip().startswith("{"):
            result |= parse_text(text)
            continue
        key, equals, value = text.partition("=")
        if not equals:
            raise ValueError(f"{text!r} is neither KEY=VALUE nor a JSON object")
        result[key] = _json_or_text(value) if name in ("settings", "func_args") else value
    return result


def _json_or_text(value: str) -> Any:
    try:
        return read_json(value)
    except NotJson:
        return value


def _function(text: str) -> NamedSource:
    """Return the source of a function in a file, without decorators. The file is not imported."""
    file, colon, name = text.rpartition(":")
    if not colon or not file:
        raise ValueError(f"{text!r} is not of the form FILE.py:NAME")
    source = Path(file).read_text("utf-8")
    try:
        body = ast.parse(source).body
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(f"{file} is not Python: {error}") from None
    found = [node for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name]
    if not found:
        raise ValueError(f"{file} defines no function {name!r}")
    result = source_of("".join(lines_of(source)[found[-1].lineno - 1 : found[-1].end_lineno]))
    assert result is not None
    return result
