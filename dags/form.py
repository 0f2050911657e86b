"""Parameters as fields of the form with which Airflow starts a run.

The form takes a text for required unless its type has `null`, and then a run cannot be started while a single one is empty. A list
without the type of its entries is a list of texts there, one on each line.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from airflow.sdk import Param

REQUIRED = ("dataset_uri", "model_uri", "export_uri")
"""What a fine-tuning cannot do without."""


_LIST_AS_TEXT = r"^\s*(\[[\s\S]*\]\s*)?$"
"""Refuses at the start of a run what is certainly no JSON list; the step that uses the list parses it."""


def objects(description: str) -> Param:
    """Return a parameter that is a list of objects, or its JSON text: by default none. `description` shows an example."""
    schema: dict[str, Any] = {"type": ["array", "string", "null"], "items": {"type": "object"}, "pattern": _LIST_AS_TEXT}
    return Param([], description=f"JSON list of objects: {description}", **schema)


def form(parameters: Mapping[str, Param], required: Collection[str] = REQUIRED) -> dict[str, Param]:
    """Return the parameters, of which the texts that are or may be empty may be left empty, but for the `required` ones."""
    return {name: param if name in required else _optional(param) for name, param in parameters.items()}


def parameter(name: str) -> str:
    """Return the template of a parameter: an empty text for one that was left empty in the form."""
    return f"{{{{ '' if params.{name} is none else params.{name} }}}}"


def _optional(param: Param) -> Param:
    kinds = param.schema.get("type", "string")
    kinds = [kinds] if isinstance(kinds, str) else list(kinds)
    if "string" not in kinds or "null" in kinds or "" not in (param.value, *param.schema.get("enum", ())):
        return param
    schema = {**param.schema, "type": [*kinds, "null"]}
    if "enum" in schema:
        schema["enum"] = [*schema["enum"], None]
    return Param(param.value, description=param.description, **schema)
