"""Tiers of tests: what is selected, how many processes run it, and which exit code tells make whether all is well."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import tiers
from tiers import Run

PROGRAM = Path(tiers.__file__)


@pytest.mark.medium
def test_modules_with_tests_alone_have_the_mark() -> None:
    found = tiers.modules_that(lambda text: tiers.writes(text, "alone"))
    assert "tests/controlplane/apiserver/test_apiserver_connections.py" in found
    assert "tests/text/test_yaml_reader.py" not in found


def test_modules_that_import_the_same_heavy_package_are_a_group() -> None:
    assert tiers.group_of("tests/components/test_build.py::test_everything_is_compiled") == "kfp"
    assert tiers.group_of("tests/api/test_crds.py::test_the_command_prints_them") == ""
    assert [start for start in tiers.GROUPS if not (tiers.ROOT / start).exists()] == []


@pytest.mark.parametrize(
    ("marks", "text", "problem"),
    [
        ({"medium"}, "", ""),
        ({"alone", "slow"}, "@pytest.mark.alone\n@pytest.mark.slow\n", ""),
        ({"alone"}, "@pytest.mark.alone\n", "alone needs medium or slow beside it"),
        ({"alone", "medium"}, "@SHARED_MARK\n", "write pytest.mark.alone in its module"),
        ({"slow"}, "@SHARED_MARK\n", "write pytest.mark.slow in its module"),
        ({"acceptance"}, "", "scenes of the acceptance suite are in tests/acceptance"),
    ],
    ids=["other", "written", "fast", "shared", "shared slow", "scene elsewhere"],
)
def test_marks_that_no_run_selects_are_refused(tmp_path: Path, marks: set[str], text: str, problem: str) -> None:
    module = tmp_path / "test_it.py"
    module.write_text(text, "utf-8")
    found = tiers.never_runs(marks, module)
    assert found.startswith(problem)
    assert bool(found) == bool(problem)


@pytest.mark.medium
@pytest.mark.wide(part="suite")
def test_tests_of_a_tier_run_in_several_processes() -> None:
    command = [sys.executable, PROGRAM, "fast", "tests/test_tiers.py", "-v", "-p", "no:cacheprovider", "-k", "alone or group"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env={**os.environ, "WORKERS": "2"})
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 workers" in done.stdout
    assert [int(count) for count in re.findall(r"(\d+) passed", done.stdout)] == [2]


SOME_SLOW = "@pytest.mark.slow\ndef test_it(): ...\nTABLE = [\n    1,\n]\n"


@pytest.mark.parametrize(
    ("text", "fast", "medium", "slow"),
    [
        ("def test_it(): ...\n", True, True, False),
        (SOME_SLOW, True, True, True),
        (f"pytestmark = [pytest.mark.medium]\n{SOME_SLOW}", False, True, True),
        (f"pytestmark = [\n    pytest.mark.medium,\n]\n{SOME_SLOW}", False, True, True),
        ("pytestmark = pytest.mark.slow\n", False, False, True),
        ("pytestmark = [\n    pytest.mark.slow,\n]\n", False, False, True),
        ('pytestmark = [pytest.mark.medium, pytest.mark.wide(part="suite")]\n', False, False, False),
    ],
)
def test_modules_without_tests_of_a_tier_are_left_out(text: str, fast: bool, medium: bool, slow: bool) -> None:
    assert [tiers.may_have(text, names) for names in (["fast"], ["fast", "medium"], ["slow"])] == [fast, medium, slow]


class Runs:
    """Stands in for pytest: returns these runs in their order, and records what was run."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, runs: Sequence[Run]) -> None:
        self.runs, self.commands = list(runs), list[tuple[str, ...]]()
        monkeypatch.setattr(tiers, "_pytest", self.run)
        monkeypatch.setattr(tiers, "modules_that", lambda _fits: [])

    def run(self, *arguments: str) -> Run:
        self.commands.append(arguments)
        return self.runs.pop(0)


TEST, OTHER, THIRD = "tests/a.py::one", "tests/a.py::two", "tests/b.py::three"
PASSES = Run(0, passed=[TEST, OTHER])


def failing(*tests: str, phase: str = "call", code: int = 1) -> Run:
    return Run(code, failed=dict.fromkeys(tests, phase))


RECHECKS = {
    "passes again": ([failing(TEST), PASSES, PASSES, PASSES], 0, 3),
    "two pass again": ([failing(TEST, OTHER), PASSES, PASSES, PASSES], 0, 3),
    "module fails": ([failing(TEST), failing(OTHER), PASSES, PASSES], 1, 3),
    "fails again": ([failing(TEST), PASSES, failing(TEST), PASSES], 1, 3),
    "skipped": ([failing(TEST), PASSES, PASSES, Run(0)], 1, 3),
    "too many": ([failing(TEST, OTHER, THIRD)], 1, 0),
    "teardown": ([failing(TEST, phase="teardown")], 1, 0),
    "crash": ([failing(TEST, phase="???")], 1, 0),
    "import": ([failing("tests/a.py", phase="collect")], 1, 0),
    "unknown": ([Run(1)], 1, 0),
    "interrupted": ([failing(TEST, code=2)], 2, 0),
    "passed": ([PASSES], 0, 0),
}


@pytest.mark.medium
@pytest.mark.parametrize(("runs", "expected", "rechecks"), RECHECKS.values(), ids=RECHECKS)
def test_recheck_forgives_tests_that_pass_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], runs: Sequence[Run], expected: int, rechecks: int
) -> None:
    made = Runs(monkeypatch, runs)
    assert tiers.main(["fast", "--recheck", "-q"]) == expected
    tests = tuple(runs[0].failed)
    selected = made.commands[0][made.commands[0].index("-m") + 1]
    module, alone = ("-q", "-m", selected, "tests/a.py"), ("-q", *tests)
    assert made.commands[1:] == [module, alone, alone][:rechecks]
    assert made.runs == []
    assert ("UNSTABLE: " in capsys.readouterr().out) is (rechecks > 0 and expected == 0)


LEAVES = "import os\ndef test_first(): pass\ndef test_second(): os._exit(0)\ndef test_third(): assert False\n"
EXITS = "import pytest\ndef test_first(): pass\ndef test_second(): pytest.exit('done', returncode=0)\ndef test_third(): assert False\n"
FAILS = """
import pytest
@pytest.fixture
def broken(): assert 0
def test_setup(broken): pass
def test_call(): assert 0
def test_passes(): pass
"""


ENDINGS = {
    "process": (LEAVES, Run(2)),
    "session": (EXITS, Run(2, passed=["test_run.py::test_first"])),
    "fails": (
        FAILS,
        Run(1, {"test_run.py::test_setup": "setup", "test_run.py::test_call": "call"}, ["test_run.py::test_passes"]),
    ),
}


@pytest.mark.parametrize(("module", "expected"), ENDINGS.values(), ids=ENDINGS)
@pytest.mark.medium
@pytest.mark.wide(part="suite")
def test_run_of_pytest_is_reported_with_its_phases(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, expected: Run
) -> None:
    (tmp_path / "test_run.py").write_text(module, "utf-8")
    monkeypatch.setattr(tiers, "ROOT", tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(PROGRAM.parent))
    run = tiers._pytest("-q", "-p", "support.run_report")
    assert (run.code, run.failed, list(run.passed)) == (expected.code, expected.failed, list(expected.passed))


def test_run_ends_with_what_it_came_to_and_was_not_compared(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.delenv("TRAINWRIGHT_SHARED", raising=False)
    monkeypatch.setattr(tiers, "ROOT", tmp_path / "checkout")
    Runs(monkeypatch, [PASSES, Run(5)])
    assert tiers.main(["medium"]) == 0
    assert capsys.readouterr().out == "medium: 2 passed, 0 failed\n"
    Runs(monkeypatch, [Run(0, not_compared=["users", "upstream"]), Run(0, passed=[TEST], not_compared=["users"])])
    assert tiers.main(["medium"]) == 0
    assert capsys.readouterr().out == (
        "medium: 1 passed, 0 failed\n"
        "Not compared with upstream (1 test), users (2 tests), because ../shared is missing; "
        "set TRAINWRIGHT_SHARED to a folder that has them.\n"
    )
    Runs(monkeypatch, [Run(5), Run(5)])
    assert tiers.main(["medium", "tests/api"]) == 5
    assert capsys.readouterr().out.startswith("No test of medium was selected")
