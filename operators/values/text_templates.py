"""Renders text to text, also in a DAG with `render_template_as_native_obj=True`.

Jinja's native rendering reads all text as Python, with or without a template in it: "1" becomes 1, and "1.10" 1.1. A variable, a label
or an argument is text, and stays as the user wrote it. An argument of a function has the type of what its template names.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from trainwright.operators.values.given_parameters import ChecksGivenParameters

if TYPE_CHECKING:
    import jinja2
    from airflow.sdk import Context

_OWN = frozenset(
    {"conn_id", "hub_conn_id", "name", "namespace", "run_id", "runs_on", "store_conn_id", "submission_mode", "workspace_path"}
)
_STRUCTURES = frozenset(
    {"data", "defaults", "evaluation", "job", "run", "training", "preprocessing", "export", "promotion", "registration"}
)
"""Objects of settings by name, except the groups."""
_OF_FUNCTIONS = frozenset({"func_args", "op_args", "op_kwargs"})
"""Arguments of a training function."""


class _Names(NamedTuple):
    """Names of parameters: those that are text, those whose entries are, and objects of settings by name."""

    text: frozenset[str]
    texts: frozenset[str]
    structures: frozenset[str]


@cache
def _names() -> _Names:
    """The names of parameters of all operators, from the definitions, which a worker reads when it renders templates.

    A template of a text may still render to an object: `trainjob` takes the XCom of a task.
    """
    from trainwright.jobs.request.setting import Settings, options_of, settings_of
    from trainwright.jobs.request.train_request import TrainRequest
    from trainwright.steps import requests

    classes: list[type[Settings]] = [
        one for one in vars(requests).values() if isinstance(one, type) and issubclass(one, Settings)
    ]
    rows = [*options_of(TrainRequest).values(), *(row for one in classes for row in settings_of(one).values())]
    return _Names(
        _OWN | {row.name for row in rows if row.kind == "text"},
        frozenset({"tracking"} | {row.name for row in rows if row.has_texts}),
        _STRUCTURES | {row.name for one in (*classes, TrainRequest) for row in settings_of(one).values() if row.of is not None},
    )


class TextTemplates(ChecksGivenParameters):
    """An operator whose text parameters, and texts in lists and objects of text, render to text. All others are Airflow's."""

    # A task that was mapped is rendered by this method alone.
    def _do_render_template_fields(
        self, parent: Any, template_fields: Iterable[str], context: Context, jinja_env: jinja2.Environment, seen_oids: set[int]
    ) -> None:
        fields = list(template_fields)
        if parent is self:
            for name in fields:
                setattr(self, name, _with_texts(name, getattr(self, name), jinja_env))
        super()._do_render_template_fields(parent, fields, context, jinja_env, seen_oids)


class _Text:
    """A template of text. Airflow calls `resolve` of what is in a template field."""

    as_text: ClassVar[tuple[type[Any], ...]] = (str, int, float)

    def __init__(self, template: str, environment: jinja2.Environment):
        self._template, self._environment = template, environment

    def __repr__(self) -> str:
        return repr(self._template)

    def resolve(self, context: Context) -> Any:
        """Return the text; the object itself if the template is one expression with another value than text, a
        number or a boolean."""
        template = self._environment.from_string(self._template)
        parts = list(template.root_render_func(template.new_context(dict(context))))
        if len(parts) == 1 and not isinstance(parts[0], self.as_text):
            return parts[0]  # None, an object or a list, which only native rendering passes on
        return "".join(map(str, parts))


class _Argument(_Text):
    """A template of an argument, which may be a number or a boolean as well."""

    as_text = (str,)


def _with_texts(name: str, value: Any, environment: jinja2.Environment) -> Any:
    names = _names()
    if name in _OF_FUNCTIONS:
        return _entries(value, environment, _Argument)
    if name in names.text and isinstance(value, str):
        return _entries(value, environment)
    if name in names.texts and isinstance(value, dict | list | tuple):
        return _entries(value, environment)
    if name in names.structures and isinstance(value, dict):
        return {key: _with_texts(key, entry, environment) for key, entry in value.items()}
    return value


def _entries(value: Any, environment: jinja2.Environment, kind: type[_Text] = _Text) -> Any:
    if isinstance(value, str):
        return kind(value, environment)
    if isinstance(value, dict):
        return {key: _entries(entry, environment, kind) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_entries(entry, environment, kind) for entry in value]
    return value
