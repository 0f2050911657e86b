"""Parts of a request that are written as Kubernetes writes them, judged by their shape, with the field path of each problem. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainwright.api.decoding import decoding_problems
from trainwright.api.nearest import nearest
from trainwright.api.settling import settled
from trainwright.api.shape_check import findings
from trainwright.api.shapes import Record


def shape_problems(shape: Record, value: dict[str, Any], path: str) -> Iterator[str]:
    """What the shape does not know or not allow."""
    misread = decoding_problems(shape, value, shape.type_name)
    if misread:
        yield from (f"{path}.{problem.field}: {problem.message}" for problem in misread)
        return
    _, unknown = settled(shape, value)
    yield from (f"{path}.{field}: unknown field; {nearest(field.rpartition('.')[2], known)}" for field, known in unknown)
    yield from (f"{path}.{problem.field}: {problem.message}" for problem in findings(shape, value).schema)
