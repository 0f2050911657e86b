"""Every component and pipeline compiles, and has the inputs, types, defaults and outputs that are checked in."""

from __future__ import annotations

import pytest
from interfaces import NAMES, checked_in, compilables, interface_of

pytestmark = pytest.mark.medium


@pytest.mark.parametrize("name", NAMES)
def test_interfaces_match_the_checked_in_ones(name: str) -> None:
    assert interface_of(compilables()[name]) == checked_in(name), "if it is meant: `make interfaces`, and a line in CHANGELOG.md"


def test_every_interface_is_of_something() -> None:
    assert set(NAMES) == set(compilables())
