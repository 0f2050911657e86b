"""The variables of a program: literals, and references to Secrets and the like. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainwright.api.objects import Obj
from trainwright.api.schema.container import ENV_VAR
from trainwright.jobs.request.field_schemas import schema_problems

Variables = dict[str, str | dict[str, Any]]
"""Name to value, or to `{"valueFrom": {"secretKeyRef": {"name": ..., "key": ...}}}` and its like."""


def reference_problems(name: str, reference: dict[str, Any]) -> Iterator[str]:
    """What is wrong with a reference; the field is the name of the variable."""
    if set(reference) != {"valueFrom"} or not isinstance(reference["valueFrom"], dict) or len(reference["valueFrom"]) != 1:
        yield f"{name}: expected a text, or valueFrom with one of secretKeyRef, configMapKeyRef, fieldRef, resourceFieldRef"
        return
    yield from schema_problems(ENV_VAR, {"name": name, **reference}, name)


def env_of(variables: Variables) -> list[Obj]:
    """As a container has them, by name: a mapping that went through an orchestrator has no order, and digests depend on it."""
    return [_entry(name, value) for name, value in sorted(variables.items())]


def _entry(name: str, value: str | dict[str, Any]) -> Obj:
    return {"name": name, "value": value} if isinstance(value, str) else {"name": name, **value}
