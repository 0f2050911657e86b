"""Skips modules of tests whose packages are not installed, without importing these: some take seconds, in every test process."""

from __future__ import annotations

from importlib.util import find_spec

import pytest


def require_packages(*names: str) -> None:
    """Skip the calling module if one of the packages is not installed."""
    for name in names:
        if find_spec(name) is None:
            pytest.skip(f"{name} is not installed", allow_module_level=True)
