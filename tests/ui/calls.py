"""Calls of endpoints without a server: with the cluster of a test."""

from __future__ import annotations

from typing import Any

from trainwright.submission.jobs_client import JobsClient
from trainwright.ui.call import Call, Page
from trainwright.ui.sessions import Session


def call(cluster: Any, path: dict[str, str] | None = None, *, key: str = "k", page: Page | None = None, **query: Any) -> Call:
    """A call with these parameters of the path and the query."""
    session = Session(JobsClient.of(cluster), "", key, 0.0)
    return Call(session, page or Page(), path or {}, {name: str(value) for name, value in query.items()})
