"""Where the files of a volume of the API's objects may lie: below the volume, and not where the kubelet keeps its own.

Sources: `validateKeyToPath`, `validateLocalNonReservedPath` and `validateVolumeModes` of Kubernetes.
"""

from __future__ import annotations

from collections.abc import Iterator

from trainwright.api.errors import Problem
from trainwright.api.objects import Obj
from trainwright.api.rules.problems import required
from trainwright.api.schema.check import as_json

_LARGEST_MODE = 0o777


def key_problems(source: Obj, where: str) -> Iterator[Problem]:
    """Problems of the keys that a `configMap` or `secret` source names, and of the modes of their files."""
    yield from mode_problems(source.get("defaultMode"), f"{where}.defaultMode")
    for index, item in enumerate(source.get("items") or []):
        own = f"{where}.items[{index}]"
        if not item.get("key"):
            yield required(f"{own}.key")
        if not item.get("path"):
            yield required(f"{own}.path")
        yield from path_problems(str(item.get("path") or ""), f"{own}.path")
        yield from mode_problems(item.get("mode"), f"{own}.mode")


def path_problems(path: str, where: str) -> Iterator[Problem]:
    """Problems of a file's path in its volume."""
    if path.startswith("/"):
        yield Problem(where, f"Invalid value: {as_json(path)}: must be a relative path")
    if ".." in path.split("/"):
        yield Problem(where, f"Invalid value: {as_json(path)}: must not contain '..'")
    if path.startswith("..") and not path.startswith("../"):
        yield Problem(where, f"Invalid value: {as_json(path)}: must not start with '..'")


def mode_problems(mode: int | None, where: str) -> Iterator[Problem]:
    """Problems of a file's mode."""
    if mode is not None and not 0 <= mode <= _LARGEST_MODE:
        yield Problem(where, f"Invalid value: {mode}: must be a number between 0 and 0777 (octal), both inclusive")
