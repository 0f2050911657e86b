"""Validates the parts of a request that have a Kubernetes schema. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainwright.api.schema.check import findings
from trainwright.api.schema.decoding import decoding_problems
from trainwright.api.schema.defaulting import apply_defaults
from trainwright.api.schema.published import struct_named
from trainwright.api.schema.types import Struct
from trainwright.text.suggest import suggest


def schema_problems(schema: Struct, value: dict[str, Any], path: str) -> Iterator[str]:
    """Yield `PATH: MESSAGE` for each unknown or invalid field."""
    misread = decoding_problems(schema, value, schema.type_name)
    if misread:
        yield from (f"{path}.{problem.field}: {problem.message}" for problem in misread)
        return
    _, unknown = apply_defaults(schema, value)
    yield from (f"{path}.{field}: unknown field; {suggest(field.rpartition('.')[2], known)}" for field, known in unknown)
    yield from (f"{path}.{problem.field}: {problem.message}" for problem in findings(schema, value).schema_problems)


def volume_problems(volumes: list[dict[str, Any]], mounts: list[dict[str, Any]]) -> Iterator[str]:
    """Yield problems of the volumes and their mounts, each starting with the field. A mount may be of a volume of the runtime."""
    for field, entries, name in (("volumes", volumes, "custom/Volume"), ("volume_mounts", mounts, "VolumeMount")):
        for index, entry in enumerate(entries):
            yield from schema_problems(struct_named(name), entry, f"{field}[{index}]")
    for field, key, found in (("volumes", "name", volumes), ("volume_mounts", "mountPath", mounts)):
        values = [str(entry.get(key)) for entry in found]
        yield from (f"{field}: {value!r} is there twice" for value in dict.fromkeys(values) if values.count(value) > 1)
