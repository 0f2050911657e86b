"""Environment variables: literals, and references to Secrets, ConfigMaps and fields. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainwright.api.objects import Obj
from trainwright.api.schema.published import struct_named
from trainwright.jobs.request.field_schemas import schema_problems
from trainwright.jobs.request.setting_values import Variables


def known_variables(variables: Variables) -> Variables:
    """Return variables whose references are valid. Raises ValueError."""
    for name, value in variables.items():
        if isinstance(value, dict) and (problems := "; ".join(reference_problems(name, value))):
            raise ValueError(problems)
    return variables


def reference_problems(name: str, reference: dict[str, Any]) -> Iterator[str]:
    """Yield the problems of a reference, with the variable's name as the field."""
    if set(reference) != {"valueFrom"} or not isinstance(reference["valueFrom"], dict) or len(reference["valueFrom"]) != 1:
        yield f"{name}: expected a string, or valueFrom with one of secretKeyRef, configMapKeyRef, fieldRef, resourceFieldRef"
        return
    yield from schema_problems(struct_named("EnvVar"), {"name": name, **reference}, name)


def env_of(variables: Variables) -> list[Obj]:
    """Return the variables of a container, sorted by name: digests depend on the order, which orchestrators do not preserve."""
    return [_entry(name, value) for name, value in sorted(variables.items())]


def _entry(name: str, value: str | dict[str, Any]) -> Obj:
    return {"name": name, "value": value} if isinstance(value, str) else {"name": name, **value}
