"""Compares two exports: their files by digest, their metrics, and what is recorded about their trainings. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypedDict

from trainwright.checkpoints.history.training_history import HISTORY
from trainwright.checkpoints.manifest import Manifest

_MAX_FIELDS = 500
_MAX_DEPTH = 6


class Difference(TypedDict):
    """Paths of files by how they differ; `unchanged` is their number. `bytes` and each of the `metrics` are those of both exports."""

    added: list[str]
    removed: list[str]
    changed: list[str]
    unchanged: int
    bytes: list[int]
    metrics: dict[str, list[float | None]]


def compare_exports(one: Manifest, other: Manifest) -> Difference:
    """Return what differs from one export to the other."""
    before = {file.path: file for file in one.files}
    after = {file.path: file for file in other.files}
    changed = [path for path in sorted(before.keys() & after.keys()) if before[path].sha256 != after[path].sha256]
    return {
        "added": sorted(after.keys() - before.keys()),
        "removed": sorted(before.keys() - after.keys()),
        "changed": changed,
        "unchanged": len(before.keys() & after.keys()) - len(changed),
        "bytes": [one.size, other.size],
        "metrics": {name: [one.metrics.get(name), other.metrics.get(name)] for name in sorted({*one.metrics, *other.metrics})},
    }


def has_same_files(difference: Difference) -> bool:
    return not (difference["added"] or difference["removed"] or difference["changed"])


def recorded_fields(manifest: Manifest) -> dict[str, Any]:
    """Return what a manifest records besides files and metrics, with a dotted name for each value; the log history is left out."""
    metadata = {name: value for name, value in manifest.metadata.items() if name != HISTORY}
    about = {"format": manifest.format, "step": manifest.step, "source": manifest.source, "resumable": manifest.resumable}
    return {**about, **flat_fields(metadata)}


def flat_fields(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of nested objects under dotted names: the first 500. Lists are values."""
    found: dict[str, Any] = {}
    for name, value in _flat("", values, 0):
        if len(found) == _MAX_FIELDS:
            break
        found[name] = value
    return found


def changed_fields(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return the fields that differ, each with both values; None for one that is missing."""
    names = dict.fromkeys((*one, *other))
    return {name: [one.get(name), other.get(name)] for name in names if one.get(name) != other.get(name)}


def _flat(prefix: str, values: Mapping[str, Any], depth: int) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping) and value and depth < _MAX_DEPTH:
            yield from _flat(f"{prefix}{name}.", value, depth + 1)
        else:
            yield f"{prefix}{name}", value
