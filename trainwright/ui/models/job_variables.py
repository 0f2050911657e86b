"""The environment variables that a TrainJob sets for its pods, wherever in its spec it does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from trainwright.api.objects import Obj

_MAX_SPEC_DEPTH = 30


def variables_of(trainjob: Obj) -> Iterator[tuple[str, str]]:
    """Yield name and value of all variables with a literal value in the `env` lists of a job's spec. Pure."""
    for entry in _entries(trainjob.get("spec"), 0):
        name, value = entry.get("name"), entry.get("value")
        if isinstance(name, str) and isinstance(value, str):
            yield name, value


def _entries(value: object, depth: int) -> Iterator[Mapping[str, object]]:
    if depth > _MAX_SPEC_DEPTH:
        return
    if isinstance(value, Mapping):
        for name, each in value.items():
            if name == "env" and isinstance(each, list):
                yield from (entry for entry in each if isinstance(entry, Mapping))
            else:
                yield from _entries(each, depth + 1)
    elif isinstance(value, list):
        for each in value:
            yield from _entries(each, depth + 1)
