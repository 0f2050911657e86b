"""Skips modules of tests whose packages are not installed, without importing these: some take seconds, in every test process."""

from __future__ import annotations

from importlib.util import find_spec

import pytest


def require_packages(*names: str, extra: str = "") -> None:
    """Skip the calling module if one of the packages is not installed; `extra` is the one that installs them."""
    for name in names:
        if find_spec(name) is None:
            pytest.skip(
                f"{name} is not installed" + (f": it is in the extra `{extra}`" if extra else ""), allow_module_level=True
            )
