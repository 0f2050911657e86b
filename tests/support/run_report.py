"""What happened in a run of pytest, for tests/tiers.py: its exit code tells neither which tests failed, nor in which phase.

A plugin, which does nothing unless the environment names a file. The process that reports writes it, when the run has come to its end.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import tiers

from support.shared_folder import what_was_not_compared


class RunReport:
    """Notes the first phase in which each test failed: `setup`, `call`, `teardown`, `collect`, or `???` where a process crashed."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._failed: dict[str, str] = {}
        self._passed: list[str] = []
        self._not_compared: list[str] = []
        self._was_interrupted = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed.setdefault(report.nodeid, str(report.when))
        elif report.passed and report.when == "call":
            self._passed.append(report.nodeid)
        else:
            self._note_skipped(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._failed.setdefault(report.nodeid, "collect")
        else:
            self._note_skipped(report)

    def _note_skipped(self, report: Any) -> None:
        if report.skipped and isinstance(report.longrepr, tuple) and (what := what_was_not_compared(report.longrepr[2])):
            self._not_compared.append(what)

    def pytest_keyboard_interrupt(self) -> None:
        """Also called for `pytest.exit`, whatever exit code it asks for."""
        self._was_interrupted = True

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        found = {
            "failed": self._failed,
            "passed": self._passed,
            "not_compared": self._not_compared,
            "interrupted": self._was_interrupted,
        }
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.write_text(json.dumps(found), "utf-8")


def pytest_configure(config: pytest.Config) -> None:
    """Without the variable from here on: runs of pytest inside of tests are not part of this run."""
    file = os.environ.pop(tiers.REPORT, "")
    if file and not hasattr(config, "workerinput"):
        config.pluginmanager.register(RunReport(Path(file)))
