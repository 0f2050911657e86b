"""The model that all tests share: a test that changes it is found out."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CHANGES = "def test_change(tiny_model):\n    (tiny_model / 'config.json').write_text('{}')\n"


@pytest.mark.medium
def test_changed_model_fails_the_run(tmp_path: Path) -> None:
    (tmp_path / "test_change.py").write_text(CHANGES, "utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "support.tiny_model", "-p", "no:cacheprovider", "--rootdir", tmp_path]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    env.pop("PYTEST_XDIST_WORKER", None)  # the run inside has a temporary folder and a model to itself
    done = subprocess.run(
        [*command, "--basetemp", tmp_path / "base"], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "a test has changed the model that all tests share" in done.stdout
