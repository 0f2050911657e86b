"""Settings that a run takes from the form, else from the Variable `trainwright_retraining`, else from their defaults.

Airflow's form sends every field, also those that nobody has touched. These fields are therefore empty at first: a default in one could
not be told from the same value chosen by a person.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Mapping
from typing import Any

from airflow.sdk import Param, Variable

from trainwright.operators.values.airflow_api import AirflowFailException

log = logging.getLogger(__name__)
VARIABLE = "trainwright_retraining"
"""A JSON object with settings by their names."""
_FLAG = {"type": ["string", "boolean", "null"], "examples": ["true", "false"], "pattern": "^(true|false)?$"}
"""A switch cannot be empty, so a flag is a text with two suggestions. A request may send a boolean."""


def optional_fields(parameters: Mapping[str, Param]) -> dict[str, Param]:
    """Return the parameters as fields that are empty in the form; their descriptions say what an empty one means."""
    return {name: _optional_field(param) for name, param in parameters.items()}


def setting(name: str, default: Any) -> str:
    """The template of a setting: the parameter of the run unless it is null, else the Variable's value, else the default."""
    return f"{{{{ [params.{name}, var.json.get('{VARIABLE}', {{}}).get({name!r}), {default!r}] | reject('none') | first }}}}"


def entry(name: str, key: str, default: Any) -> str:
    """The template of one entry of a setting that is an object."""
    value = setting(name, {}).removeprefix("{{").removesuffix("}}").strip()
    return f"{{{{ ({value}).get({key!r}, {default!r}) }}}}"


def log_sources(params: Mapping[str, Any], known: Collection[str]) -> None:
    """Log which settings the form and the Variable give. `known` are the names that the Variable may have.

    Raises AirflowFailException for a Variable that is not an object, or has an unknown name: its default would apply in silence.
    """
    from trainwright.text.suggest import suggest

    try:
        found = json.loads(Variable.get(VARIABLE, default=None) or "{}")
    except ValueError as error:
        raise AirflowFailException(f"the Variable {VARIABLE} is not JSON: {error}; correct it") from None
    if not isinstance(found, dict):
        raise AirflowFailException(f"the Variable {VARIABLE} is no JSON object but a {type(found).__name__}; correct it")
    for name in found:
        if name not in known:
            raise AirflowFailException(f"the Variable {VARIABLE}: the setting {name[:80]!r} is unknown; {suggest(name, known)}")
    given = sorted(name for name in known if params.get(name) is not None)
    log.info("settings of the run: %s", ", ".join(given) or "none")
    used = sorted(name for name in found if name not in given)
    log.info("settings of the Variable %s: %s", VARIABLE, ", ".join(used) or "none")


def _optional_field(param: Param) -> Param:
    schema = {name: value for name, value in param.schema.items() if name not in ("type", "enum", "examples")}
    kinds = param.schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else list(kinds)
    if "boolean" in kinds:
        schema |= _FLAG
    elif kinds:
        schema["type"] = [*kinds, "null"] if "null" not in kinds else kinds
    if "enum" in param.schema:
        schema["enum"] = [None, *(choice for choice in param.schema["enum"] if choice is not None)]
    return Param(None, description=_with_default(param), **schema)


def _with_default(param: Param) -> str:
    default = param.value if isinstance(param.value, str) else json.dumps(param.value)
    otherwise = "" if param.value in ("", None, [], {}) else f", else {default}"
    empty = f"Empty: as the Variable {VARIABLE} says{otherwise}."
    return f"{param.description.rstrip('.')}. {empty}" if param.description else empty
