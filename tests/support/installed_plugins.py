"""Entry points that stand for installed packages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import EntryPoint
from typing import Any

import pytest


@contextmanager
def installed_plugins(monkeypatch: pytest.MonkeyPatch, forget: Callable[[], object]) -> Iterator[list[EntryPoint]]:
    """Yield a list whose entry points are the installed ones; `forget` drops a cached list."""
    found: list[EntryPoint] = []

    def entry_points(**selection: Any) -> list[EntryPoint]:
        return [entry for entry in found if entry.group == selection["group"]]

    monkeypatch.setattr("importlib.metadata.entry_points", entry_points)
    forget()
    yield found
    forget()
