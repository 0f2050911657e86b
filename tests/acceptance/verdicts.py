"""The table at the end: scene, seconds, verdict, and what was wrong or why it was skipped."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
from rich.console import Console
from rich.table import Table

from acceptance.scene import SEEN

COLOURS = {"passed": "green", "failed": "bold red", "skipped": "yellow", "known fault": "magenta"}
WIDTH = 160
SHOWN = 500


class Verdicts:
    """Collects the reports of all scenes, also those of other processes."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = defaultdict(float)
        self._verdicts: dict[str, tuple[str, str]] = {}

    @pytest.hookimpl
    def pytest_runtest_logreport(self, report: Any) -> None:
        if "test_scenes.py::" not in report.nodeid:
            return
        scene = report.nodeid.partition("[")[2].removesuffix("]") or report.nodeid.rpartition("::")[2]
        self._seconds[scene] += report.duration
        verdict = _verdict(report)
        if verdict is not None and self._verdicts.get(scene, ("",))[0] != "failed":
            self._verdicts[scene] = verdict

    @pytest.hookimpl
    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if not self._verdicts:
            return
        table = Table("scene", "seconds", "verdict", "what was wrong, or why not")
        table.columns[1].justify = "right"
        for scene, (verdict, why) in sorted(self._verdicts.items()):
            table.add_row(scene, f"{self._seconds[scene]:.1f}", f"[{COLOURS[verdict]}]{verdict}[/]", why.replace("[", "\\["))
        colours = terminalreporter.config.get_terminal_writer().hasmarkup
        console = Console(width=WIDTH, force_terminal=colours, no_color=not colours)
        with console.capture() as captured:
            console.print(table)
        terminalreporter.write_line("")
        terminalreporter.write(captured.get())


def _verdict(report: Any) -> tuple[str, str] | None:
    """The verdict that a report gives, and the words beside it; None if it gives none, as the end of a set-up."""
    if hasattr(report, "wasxfail"):
        return ("known fault" if report.skipped else "passed", f"{'' if report.skipped else 'no longer: '}{report.wasxfail}")
    if report.skipped:
        return ("skipped", str(report.longrepr[2]).removeprefix("Skipped: "))
    if report.failed:
        crash = getattr(report.longrepr, "reprcrash", None)
        message = crash.message if crash is not None else str(report.longrepr)
        said = message.removeprefix("AssertionError: ").partition(f"\n{SEEN}")[0]
        return ("failed", " ".join(said.splitlines()[:3])[:SHOWN])
    return ("passed", "") if report.when == "call" else None
