"""The model that all tests share: a test that changes it is found out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.tiny_model import unchanged


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: (folder / "config.json").write_text("{}"),
        lambda folder: (folder / "more").touch(),
        lambda folder: (folder / "config.json").unlink(),
    ],
    ids=["changed", "added", "removed"],
)
def test_changed_model_fails_its_last_test(tmp_path: Path, change: Callable[[Path], object]) -> None:
    (tmp_path / "config.json").write_text('{"layers": 1}')
    with pytest.raises(AssertionError, match="a test has changed the model that all tests share"), unchanged(tmp_path):
        change(tmp_path)


def test_model_that_is_only_read_fails_none(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with unchanged(tmp_path):
        (tmp_path / "config.json").read_text()
