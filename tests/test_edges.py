"""What the edges say of the settings of a step is what the request models say."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"
pytestmark = pytest.mark.skipif(not DOCS.is_dir(), reason="needs a checkout, which has docs/")


@pytest.mark.medium
def test_everything_that_make_edges_writes_is_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(DOCS), *sys.path])
    import edges

    stale = [str(path) for path, text in edges.files() if path.read_text("utf-8") != text]
    assert not stale, "run `make edges`"
