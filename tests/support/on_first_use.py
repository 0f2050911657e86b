"""Modules that take seconds to import, such as kfp and Airflow: every test process collects all tests, and runs few of them."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any


class OnFirstUse:
    """Stands for a module that is imported when a test first reads or patches one of its names.

    conftest.py fails a run whose test modules import such packages when they are collected.
    """

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        object.__setattr__(self, "_name", name)

    def _module(self) -> ModuleType:
        return import_module(self._name)

    @property
    def __dict__(self) -> dict[str, Any]:  # monkeypatch looks in it for what it replaces
        return vars(self._module())

    def __getattr__(self, attribute: str) -> Any:
        # pytest asks every name in a module of tests whether it is a mock, a class or wrapped.
        if attribute == "_mock_name" or (attribute.startswith("__") and attribute != "__file__"):
            raise AttributeError(f"{attribute} is not read from {self._name}")
        return getattr(self._module(), attribute)

    def __setattr__(self, attribute: str, value: Any) -> None:
        setattr(self._module(), attribute, value)

    def __delattr__(self, attribute: str) -> None:
        delattr(self._module(), attribute)
