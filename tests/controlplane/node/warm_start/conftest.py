"""Containers of a node whose warm parent is ready."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.warm_containers import Containers, warm_containers


@pytest.fixture(scope="session")
def containers() -> Iterator[Containers]:
    with warm_containers() as found:
        found.wait_until_ready()
        yield found
