"""The main job with a small model: one folder of runs for each module, so that the base model is built once."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")
