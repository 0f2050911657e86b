"""Tests that need a part of the shared folder: without it they are skipped, and the end of the run says what was not compared."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import tiers
from support.shared_folder import shared_path

MODULE = """
import pytest
from support.shared_folder import reason_without, shared_folder
@pytest.mark.parametrize("number", range(3))
def test_of_upstream(number): shared_folder("upstream/trainer")
@pytest.fixture
def case(): return shared_folder("cases/field")
def test_of_cases(case): pass
@pytest.mark.parametrize("name", [pytest.param("", marks=pytest.mark.skip(reason_without("goldens/kubelet/cases")))])
def test_of_a_kubelet(name): pass
def test_of_something_else(): pytest.skip("not for this reason")
def test_passes(): pass
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A shared folder that has upstream only."""
    (tmp_path / "shared/upstream/trainer").mkdir(parents=True)
    monkeypatch.setenv("TRAINWRIGHT_SHARED", str(tmp_path / "shared"))
    return tmp_path / "shared"


@pytest.mark.parametrize("value", ["", None])
def test_shared_folder_is_beside_the_checkout_by_default(monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
    monkeypatch.setenv("TRAINWRIGHT_SHARED", value or "")
    if value is None:
        monkeypatch.delenv("TRAINWRIGHT_SHARED")
    assert shared_path("upstream") == Path(__file__).parents[2] / "shared/upstream"


@pytest.mark.medium
@pytest.mark.wide(part="suite")
def test_skipped_tests_are_counted_over_all_processes(tmp_path: Path, root: Path) -> None:
    for name in ("test_a.py", "test_b.py"):
        (tmp_path / name).write_text(MODULE, "utf-8")
    file = tmp_path / "build" / "report.json"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "support.run_report", "-p", "xdist.plugin"]
    tests = {"PYTHONPATH": str(Path(__file__).parent), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    env = {**os.environ, **tests, tiers.REPORT: str(file)}
    for processes in (["-n", "2"], []):
        done = subprocess.run(
            [*command, *processes], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=False
        )
        assert "8 passed, 6 skipped" in done.stdout, done.stdout + done.stderr
        assert tiers.not_compared(json.loads(file.read_text("utf-8"))["not_compared"]) == (
            f"Not compared with jobs and datasets of users (2 tests), pods recorded on a kubelet (2 tests), because {root} "
            "does not have them; set TRAINWRIGHT_SHARED to a folder that has them.\n"
        )
