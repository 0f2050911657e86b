"""Runs and models are tested with local folders of exports, and a workspace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ui_calls import MakeCall

from trainwright.cluster.protocol import Cluster
from trainwright.submission.jobs_client import JobsClient
from trainwright.ui.call import Call, Page
from trainwright.ui.sessions import Session


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A workspace on the claim `data` of the namespace `default`."""
    folder = tmp_path / "claims" / "default" / "data"
    (folder / "runs").mkdir(parents=True)
    return folder


@pytest.fixture
def page(tmp_path: Path, workspace: Path) -> Page:
    exports = tmp_path / "exports"
    exports.mkdir(exist_ok=True)
    return Page(exports=(f"file://{exports}",), workspaces=(tmp_path / "claims",), may_read_files=True)


@pytest.fixture
def make_call(cluster: Any, page: Page) -> MakeCall:
    """`make_call(query={...}, body={...}, page=..., cluster=...)`"""

    def make(*, query: Any = None, body: Any = None, of_page: Page | None = None, of_cluster: Cluster | None = None) -> Call:
        session = Session(JobsClient.of(of_cluster or cluster), "jane", "key", 0.0)
        return Call(session, of_page or page, query=query or {}, body=body or {})

    return make
