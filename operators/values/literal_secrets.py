"""Refuses literal credentials when a DAG is parsed: afterwards they are in the serialized DAG, for everyone who reads it.

Templates and results of other tasks are checked when the task runs.
"""

from __future__ import annotations

from inspect import isfunction
from typing import Any


def reject_literal_secrets(fields: dict[str, Any]) -> None:
    """Check the plain values of an operator's fields, and mask what is found in logs. Raises LiteralSecret naming the fields."""
    from trainwright.jobs.credentials.credential_patterns import find_literals, without_templates

    plain = {name: without_templates(_source(value) if isfunction(value) else value) for name, value in fields.items()}
    found = [literal for name, value in plain.items() for literal in find_literals(name, value)]
    if not found:
        return
    from airflow.sdk.log import mask_secret

    from trainwright.jobs.credentials.secret_detection import reject_literals

    for literal in found:
        mask_secret(literal.value)
    reject_literals(plain)


def _source(function: Any) -> str | None:
    from trainwright.jobs.code.function_source import source_of

    try:
        found = source_of(function)
    except ValueError:  # said when its arguments are checked
        return None
    return found.source if found is not None else None
