"""The main job with the tiny model: one folder of runs for each module."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def runs(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of runs in which the base model is built already."""
    folder = tmp_path_factory.mktemp("runs")
    shutil.copytree(tiny_model, folder / ".models" / tiny_model.name)
    return folder
