"""Command-line options for the settings of a training step, made from the table of settings, so that they match the KFP component
and the Airflow operator."""

from __future__ import annotations

import ast
import functools
import inspect
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from trainwright.api.errors import BadRequest
from trainwright.jobs.code.function_source import NamedSource, lines_of, source_of
from trainwright.jobs.request.setting import Setting, options_of, settings_of
from trainwright.jobs.request.setting_values import parse_text
from trainwright.jobs.request.train_request import TrainRequest
from trainwright.text.text_input import NotJson, read_json

TABLE = options_of(TrainRequest)
OF_WAITING = frozenset(name for name, one in TABLE.items() if one.section in ("limits", "logging") and name != "restarts")
EXCLUDED_SETTINGS = OF_WAITING | {
    "manifest",
    "resume",
    "resume_secret",
    "on_cancel",
    "waiter_lease_seconds",
    "submission_mode",
    "tie_to_run",
}
"""Settings for which commands define their own options: `-f`, and those of waiting; and one of pipelines alone."""
_LISTS = ("command", "args", "packages_to_install", "pip_index_urls")
_FORMS = {"object": "KEY=VALUE|JSON", "list": "JSON", "function": "FILE.py:NAME", "seconds": "SECONDS", "flag": "true|false"}
"""What is written for a setting that is neither text nor a number."""
_HINTS = {"object": "Repeatable, or one JSON object. ", "list": "Shell-quoted words in one argument, or a JSON list. "}
_OF_GROUP = re.compile(
    rf"(?<![-\w.?&/])(?:{'|'.join(name for name, one in settings_of(TrainRequest).items() if one.of)})\.(?=({'|'.join(TABLE)})\b)"
)
_ADVISED = re.compile(
    rf"(?<![-\w.?&/])({'|'.join(sorted(TABLE.keys() - EXCLUDED_SETTINGS, reverse=True))})=(\{{[^{{}}]*\}}|[\w.-]*\w)(?=[\s,;:)]|$)"
)


def with_settings(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add an option for each setting to a command, whose parameter `settings` receives the given values by name."""
    own = inspect.signature(command, eval_str=True)
    added = [_parameter(setting) for name, setting in TABLE.items() if name not in EXCLUDED_SETTINGS]

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


def in_options(text: str) -> str:
    """Return a message with the settings that it advises, such as `num_nodes=1`, as options of the command line.

    The options have no groups: `limits.restarts` is `restarts`.
    """

    def option(match: re.Match[str]) -> str:
        return f"--{match[1].replace('_', '-')} {shlex.quote(match[2])}"

    return _ADVISED.sub(option, _OF_GROUP.sub("", text))


def parsed_mapping(option: str, texts: list[str]) -> dict[str, Any]:
    """Merge `PATH=VALUE` texts, such as `limits.restarts=2`, and JSON objects of an option. Raises BadRequest.

    Values are parsed as JSON if possible.
    """
    result: dict[str, Any] = {}
    try:
        for text in texts:
            found = _mapping("settings", [text])
            if not text.lstrip().startswith("{"):
                ((path, value),) = found.items()
                for name in reversed(path.split(".")):
                    found = value = {name: value}
            _add(result, found)
    except ValueError as error:
        raise BadRequest(f"{option}: {error}") from None
    return result


def _parameter(setting: Setting) -> inspect.Parameter:
    hint = _HINTS.get(setting.kind, "") if setting.kind != "list" or setting.name in _LISTS else ""
    kinds: dict[str, Any] = {"object": list[str] | None, "integer": int | None, "seconds": int | None}
    kind = kinds.get(setting.kind, str | None)
    form = "WORDS|JSON" if setting.name in _LISTS else _FORMS.get(setting.kind)
    form = form or "|".join(filter(None, setting.choices)) or None
    name, panel = f"--{setting.name.replace('_', '-')}", setting.section[:1].upper() + setting.section[1:]
    option = typer.Option(name, help=hint + setting.description, metavar=form, rich_help_panel=panel)
    return inspect.Parameter(setting.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind, option])


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
            _add(result, parse_text(text))
            continue
        key, equals, value = text.partition("=")
        if not equals:
            raise ValueError(f"{text!r} is neither KEY=VALUE nor a JSON object")
        _add(result, {key: _json_or_text(value) if name in ("settings", "func_args") else value})
    return result


def _add(result: dict[str, Any], more: dict[str, Any], within: str = "") -> None:
    """Add settings to those before; objects are merged. Raises ValueError for one that is given twice, with other values."""
    for key, value in more.items():
        known = result.get(key)
        if isinstance(known, dict) and isinstance(value, dict):
            _add(known, value, f"{within}{key}.")
        elif key in result and known != value:
            raise ValueError(f"{within}{key}: given twice, as {str(known)[:80]} and as {str(value)[:80]}; give it once")
        else:
            result[key] = value


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
