"""Field paths such as `spec.trainer.env[2].name`, as the API writes them."""

from __future__ import annotations

from collections.abc import Mapping


def child(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def element(path: str, index: int) -> str:
    return f"{path}[{index}]"


def value_at(obj: Mapping[str, object], path: str) -> object:
    """Return the value of a path without list elements, such as `spec.nodeName`; None if there is none."""
    value: object = obj
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value
