"""The folder of what upstream ships and what was recorded elsewhere, which is not in the repository: TRAINWRIGHT_SHARED, or ../shared.

Tests that need a part of it that is missing are skipped. As a plugin of pytest, this module lists them for tests/tiers.py.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import tiers

PARTS = {
    "upstream": "the CRDs, runtimes and examples of upstream",
    "goldens/kubelet": "pods recorded on a kubelet",
    "cases": "jobs and datasets of users",
}
"""What is compared with each part."""
REASON = re.compile(r"not compared with (.+?): ")


def shared_path(name: str) -> Path:
    """A path in the folder, whether or not it exists. May be used when tests are collected."""
    return (Path(os.environ.get("TRAINWRIGHT_SHARED") or tiers.ROOT.parent / "shared") / name).absolute()


def reason_without(name: str) -> str:
    """Why tests that read this path of the folder are skipped where it is missing."""
    what = next(words for part, words in PARTS.items() if f"{name}/".startswith(f"{part}/"))
    return f"not compared with {what}: {shared_path(name)} is missing; set TRAINWRIGHT_SHARED to a folder that has {name}"


def shared_folder(name: str) -> Path:
    """A folder in it. Skips the test if it is missing."""
    path = shared_path(name)
    if not path.is_dir():
        pytest.skip(reason_without(name))
    return path


class SkippedTests:
    """Adds a line to the file for each test that was skipped for this reason, in any process of the run."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and isinstance(report.longrepr, tuple) and (found := REASON.search(report.longrepr[2])):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with self._file.open("a", encoding="utf-8") as lines:
                lines.write(f"{found[1]}\n")


def pytest_configure(config: pytest.Config) -> None:
    """Without the variable from here on: runs of pytest inside of tests are not part of this run."""
    file = os.environ.pop(tiers.NOT_COMPARED, "")
    if file and not hasattr(config, "workerinput"):
        config.pluginmanager.register(SkippedTests(Path(file)))
