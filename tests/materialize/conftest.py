"""Fixtures of the tests of materialization."""

from __future__ import annotations

from installed_policies import installed  # noqa: F401  fixture
