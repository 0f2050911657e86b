"""Field paths such as `spec.trainer.env[2].name`, as the API writes them."""

from __future__ import annotations


def child(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def element(path: str, index: int) -> str:
    return f"{path}[{index}]"
