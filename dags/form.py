"""The form with which Airflow starts a run, from the fields that the pipelines have too, in sections.

The form takes a field for required unless its type has `null`, and a run cannot be started while a single one is empty.
"""

from __future__ import annotations

import re
from typing import Any

from airflow.sdk import DAG, Param
from airflow.sdk.definitions.mappedoperator import MappedOperator
from airflow.sdk.definitions.param import ParamsDict

from trainwright.jobs.request.setting import Setting, settings_of
from trainwright.steps.requests import forms

SECTIONS = ("Data", "Model", "Training", "Search", "Export", "Evaluation", "Run", "Connections")
"""In the order of a person's thoughts."""
PHASES = ("training", "data", "evaluation")
"""Structures with all other settings, last in their sections."""
_NOT_OF_AIRFLOW = ("plan_only",)
"""Airflow can run a single task of a DAG."""
_KINDS = {"text": "string", "integer": "integer", "number": "number", "flag": "boolean", "object": "object", "list": "array"}
_NUMBERS, _ZERO = ("integer", "number"), re.compile(r"\b0: ")
_LIST_AS_TEXT = r"^\s*(\[[\s\S]*\]\s*)?$"
"""Refuses at the start of a run what is certainly no JSON list; the step that uses the list parses it."""
_CONNECTIONS = (
    Setting(
        "conn_id",
        "text",
        "",
        "Connections",
        "Connection to the cluster. Empty: what the environment of the workers names.",
    ),
    Setting(
        "store_conn_id", "text", "", "Connections", "Connection with credentials for an object store. Empty: none is needed."
    ),
)


def fields_of(name: str) -> list[Setting]:
    """The fields of a form of `trainwright.steps.requests`, with the connections: first what is required, then by section."""
    found = [*(field for field in settings_of(getattr(forms, name)).values() if field.name not in _NOT_OF_AIRFLOW), *_CONNECTIONS]
    return sorted(found, key=lambda field: (field.default is not ..., SECTIONS.index(field.section), field.name in PHASES))


def form(name: str) -> dict[str, Param]:
    """The parameters of a DAG, from a form of `trainwright.steps.requests`."""
    return {field.name: field_param(_without_zero(field)) for field in fields_of(name)}


def field_param(field: Setting) -> Param:
    """A field of the form. What has a default may be left empty; a list of objects may be its JSON text.

    Airflow shows named sections closed. What is required is in none, so that a person sees it.
    """
    is_required = field.default is ...
    schema: dict[str, Any] = {"type": _KINDS[field.kind], "title": title_of(field.name)}
    if not is_required:
        schema |= {"type": [_KINDS[field.kind], "null"], "section": field.section}
    if field.kind == "list":
        schema |= {"type": ["array", "string", "null"], "items": {}, "pattern": _LIST_AS_TEXT}
    if field.choices:
        schema["enum"] = [*field.choices, *([None] if "" in field.choices else [])]
    if field.kind in _NUMBERS:
        schema["minimum"] = 0
    example = f" Example: {field.example}" if field.example else ""
    return Param("" if is_required else field.default, description=field.description + example, **schema)


def _without_zero(field: Setting) -> Setting:
    """A number is empty in the form if its 0 stands for a default. Pipelines show the 0: kfp has no empty number."""
    if field.kind not in _NUMBERS or field.default != 0 or not _ZERO.search(field.description):
        return field
    return field._replace(default=None, description=_ZERO.sub("Empty or 0: ", field.description))


def slim(dag: DAG) -> None:
    """Leave the parameters of a DAG to the DAG, where its tasks find them: else each task is stored with all of them."""
    for task in dag.tasks:
        if isinstance(task, MappedOperator):
            task.partial_kwargs.pop("params", None)
        else:
            task.params = ParamsDict()


def title_of(name: str) -> str:
    """The title of a field: `store_conn_id` is `Store conn id`."""
    words = name.replace("_uri", " URI").replace("_", " ")
    return words[0].upper() + words[1:]


def parameters(name: str) -> dict[str, str]:
    """The templates of all fields of a form. One that was left empty has its default."""
    return {field.name: _template(field) for field in fields_of(name)}


def _template(field: Setting) -> str:
    default = "" if field.default is ... else field.default
    return f"{{{{ {default!r} if params.{field.name} is none else params.{field.name} }}}}"
