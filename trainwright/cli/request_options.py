"""The settings of a training step as command-line options: made from `TrainRequest`, so that names and meanings are those of
the KFP component and the Airflow operator."""

from __future__ import annotations

import ast
import functools
import inspect
import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, get_origin

import typer

from trainwright.api.errors import BadRequest
from trainwright.jobs.request.function_source import NamedSource, lines_of, source_of
from trainwright.jobs.request.setting_values import parsed
from trainwright.jobs.request.train_request import groups

_OF_WAITING = {"logs", "log_bytes", "on_cancel", "queue_timeout_seconds", "start_timeout_seconds", "run_timeout_seconds"}
ELSEWHERE = frozenset({"manifest", "resume", "resume_secret"} | _OF_WAITING)
"""Settings that commands have options of their own for: `-f`, and those of waiting."""
_LISTS = ("command", "args", "packages_to_install", "pip_index_urls")
_PAIRS = "KEY=VALUE, again for more, or a JSON object. "
_WORDS = "One text with its words, or a JSON list. "


def with_settings(command: Callable[..., Any]) -> Callable[..., Any]:
    """A command whose parameter `settings` gets those that were given, by name, and whose options are its own and theirs."""
    own = inspect.signature(command, eval_str=True)
    options = [_parameter(group, name, field) for group, fields in groups().items() for name, field in fields.items()]
    added = [option for option in options if option.name not in ELSEWHERE]

    @functools.wraps(command)
    def run(**given: Any) -> Any:
        settings = {option.name: given.pop(option.name) for option in added}
        said = {name: value for name, value in settings.items() if value not in (None, [])}
        return command(**given, settings=said)

    kept = [parameter for parameter in own.parameters.values() if parameter.name != "settings"]
    run.__signature__ = own.replace(parameters=[*kept, *added])  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in (*kept, *added)}
    return run


def setting_values(settings: dict[str, Any]) -> dict[str, Any]:
    """Options as `TrainRequest` takes them. Raises BadRequest naming the option."""
    return {name: _value(name, value) for name, value in settings.items()}


def _parameter(group: str, name: str, field: Any) -> inspect.Parameter:
    default = field.get_default(call_default_factory=True)
    hint = _PAIRS if isinstance(default, dict) else _WORDS if name in _LISTS else ""
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
            return parsed(value) if value.lstrip().startswith("[") else shlex.split(value)
    except OSError as error:
        raise BadRequest(f"--{name.replace('_', '-')}: {error.filename}: {error.strerror}") from None
    except ValueError as error:
        raise BadRequest(f"--{name.replace('_', '-')}: {error}") from None
    return value


def _mapping(name: str, texts: list[str]) -> dict[str, Any]:
    """`KEY=VALUE` and JSON objects together; a value of settings and arguments is JSON where it can be."""
    made: dict[str, Any] = {}
    for text in texts:
        if text.lstrip().startswith("{"):
            made |= parsed(text)
            continue
        key, equals, value = text.partition("=")
        if not equals:
            raise ValueError(f"{text!r} is neither KEY=VALUE nor a JSON object")
        made[key] = _json_or_text(value) if name in ("settings", "func_args") else value
    return made


def _json_or_text(value: str) -> Any:
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def _function(text: str) -> NamedSource:
    """The source of a function of a file, without decorators. Nothing is imported."""
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
    made = source_of("".join(lines_of(source)[found[-1].lineno - 1 : found[-1].end_lineno]))
    assert made is not None
    return made
