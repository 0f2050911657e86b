"""The cluster of the pages that need any job to show."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from factories import trainjob
from support.page_cluster import PageCluster, page_cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[PageCluster]:
    with page_cluster() as made:
        made.add_job(trainjob("demo"))
        yield made
