"""Containers as root and as an unprivileged user: isolation must work for both."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.supervised_containers import OTHER_USER, Runs, supervised_runs


@pytest.fixture(params=[None, OTHER_USER], ids=["own user", "unprivileged"])
def runs(request: pytest.FixtureRequest) -> Iterator[Runs]:
    with supervised_runs(request.param) as found:
        yield found
