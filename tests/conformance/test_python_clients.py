"""The official Python client, oldest and newest that are supported, in environments of their own: what programs do with it.

The checks are in checks/python_client.py.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from outcomes import Run, checks_of, settle

pytestmark = [pytest.mark.slow, pytest.mark.wide(part="clients")]

CLIENTS = {"kubernetes-30": "kubernetes==30.*", "kubernetes-37": "kubernetes>=37,<38"}
"""The two ends of what pyproject.toml allows. The oldest is installed beside the tests, so that most of them use it."""
DIFFERENCES: dict[str, str] = {}


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("check", checks_of("python_client"))
def test_python_client(
    check: str, client: str, checked: Callable[..., Run], record_property: Callable[[str, object], None]
) -> None:
    record_property("area", f"Python client: {client}")
    settle(checked("python_client", client, CLIENTS[client]), check, DIFFERENCES)
