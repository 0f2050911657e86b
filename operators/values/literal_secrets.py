"""Refuses literal credentials when a DAG is parsed: afterwards they are in the serialized DAG, for everyone who reads it.

Templates and results of other tasks are checked when the task runs.
"""

from __future__ import annotations

from typing import Any

_TEMPLATE = ("{{", "{%")


def reject_literal_secrets(fields: dict[str, Any]) -> None:
    """Check the plain values of an operator's fields, and mask what is found in logs. Raises LiteralSecret naming the fields."""
    from trainwright.jobs.credentials.credential_patterns import find_literals

    plain = {name: _plain(value) for name, value in fields.items()}
    found = [literal for name, value in plain.items() for literal in find_literals(name, value)]
    if not found:
        return
    from airflow.sdk.log import mask_secret

    from trainwright.jobs.credentials.secret_detection import reject_literals

    for literal in found:
        mask_secret(literal.value)
    reject_literals(plain)


def _plain(value: Any) -> Any:
    """Return a value without templates."""
    if isinstance(value, str):
        return "" if any(mark in value for mark in _TEMPLATE) else value
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return None
