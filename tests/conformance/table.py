"""`make conformance`: everything that measures the API server against what was recorded or written elsewhere, as a table of areas.

The tests are the usual ones; this runs them and counts. Not 0 when anything differs that is not listed with its reason.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
FILES = (
    "controlplane/apiserver/test_wire_recordings.py",
    "conformance/test_python_clients.py",
    "conformance/test_kubeflow_sdk.py",
)
SAME, LISTED, DIFFERENT, LEFT_OUT = "same", "listed", "different", "left out"
_REASON = 160


class Table:
    """Hears of every test's end; an area is what the test says it is of, or its file."""

    def __init__(self) -> None:
        self.counts: dict[str, Counter[str]] = defaultdict(Counter)
        self.reasons: dict[str, list[str]] = {LISTED: [], DIFFERENT: [], LEFT_OUT: []}

    @pytest.hookimpl
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Each test counts once: when it ran, or when it could not be set up."""
        if report.when == "call" or (report.when == "setup" and not report.passed):
            self._count(report)
        elif report.when == "teardown" and report.failed:
            self.reasons[DIFFERENT].append(f"{report.nodeid}: {_last(report.longreprtext)}")

    def _count(self, report: pytest.TestReport) -> None:
        area = str(dict(report.user_properties).get("area") or Path(report.nodeid.partition("::")[0]).stem)
        outcome = SAME if report.passed else DIFFERENT if report.failed else LISTED if hasattr(report, "wasxfail") else LEFT_OUT
        self.counts[area][outcome] += 1
        name = report.nodeid.partition("[")[2].removesuffix("]") or report.nodeid
        if outcome == LISTED:
            self.reasons[outcome].append(f"{name}: {report.wasxfail.removeprefix('reason: ')}")
        elif outcome == LEFT_OUT:
            why = str(report.longrepr[2]).removeprefix("Skipped: ") if isinstance(report.longrepr, tuple) else ""
            self.reasons[outcome].append(f"{name}: {why}")
        elif outcome == DIFFERENT:
            self.reasons[outcome].append(f"{name}: {_last(report.longreprtext)}")

    def tell(self) -> None:
        """Every difference with its reason, then the table."""
        for outcome, lines in self.reasons.items():
            for line in lines:
                print(f"{outcome}: {line}")
        columns = (SAME, LISTED, DIFFERENT, LEFT_OUT)
        width = max([len(area) for area in self.counts] + [4]) + 2
        print("area".ljust(width) + "cases".rjust(7) + "".join(column.rjust(11) for column in columns))
        total: Counter[str] = Counter()
        for area in sorted(self.counts):
            total += self.counts[area]
            print(_row(area, self.counts[area], columns, width))
        print(_row("all", total, columns, width))


def main(arguments: list[str]) -> int:
    """Run the tests, with what else pytest should be told (`-k watch`)."""
    table = Table()
    paths = [str(TESTS / file) for file in FILES]
    code = pytest.main(["-q", "--no-header", "--tb=no", "-p", "no:terminalreporter", *paths, *arguments], plugins=[table])
    table.tell()
    return int(code)


def _row(area: str, counts: Counter[str], columns: tuple[str, ...], width: int) -> str:
    return area.ljust(width) + str(counts.total()).rjust(7) + "".join(str(counts[column]).rjust(11) for column in columns)


def _last(text: str) -> str:
    """The line of a failure that says what was wrong."""
    lines = [line.removeprefix("E").strip() for line in text.splitlines() if line.startswith("E  ")]
    return next((line for line in lines if line), text.strip().rpartition("\n")[2])[:_REASON]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
