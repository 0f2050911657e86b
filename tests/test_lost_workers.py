"""A run goes on when a test crashes its process or hangs in it: that test fails once, and all others run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.medium, pytest.mark.wide(part="suite")]
SEVERAL = "import os, pytest\n@pytest.mark.parametrize('number', range(4))\ndef test_of_several(number):\n    {}\n"
HANGS = """
import time
def test_that_takes_its_timeout_for_a_failure():
    while True:
        try:
            time.sleep(60)
        except BaseException:
            pass
def test_after_it(): pass
"""


def run(folder: Path, *arguments: str) -> tuple[int, str]:
    """The exit code and the output of pytest in the folder."""
    plugins = ["-p", "support.crashed_workers", "-p", "support.hung_tests", "-p", "no:cacheprovider"]
    settings = ["-o", "timeout=1", "-o", "hung_seconds=1", "--rootdir", str(folder)]
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *plugins, *settings, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=100,
        check=False,
    )
    return ended.returncode, ended.stdout


@pytest.mark.parametrize("workers", [1, 2])
def test_all_other_tests_run_beside_those_that_crash(tmp_path: Path, workers: int) -> None:
    for number in range(6):
        (tmp_path / f"test_module_{number}.py").write_text(SEVERAL.format("pass"), "utf-8")
    for number in (2, 5):
        crash = "os.kill(os.getpid(), 9) if number == 1 else None"
        (tmp_path / f"test_module_{number}.py").write_text(SEVERAL.format(crash), "utf-8")
    code, output = run(tmp_path, "-n", str(workers), "--dist", "loadfile")
    assert (code, output.splitlines()[-1].split(" in ")[0]) == (1, "2 failed, 22 passed"), output
    assert len(set(re.findall(r"crashed while running '(.*::test_of_several\[1\])'", output))) == 2


def test_test_that_outlives_its_timeout_is_ended_with_its_stack(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(HANGS, "utf-8")
    code, output = run(tmp_path, "-n", "2", "--dist", "loadfile")
    assert (code, output.splitlines()[-1].split(" in ")[0]) == (1, "1 failed, 1 passed"), output
    assert re.search(r'File ".*test_it.py", line \d+ in test_that_takes_its_timeout_for_a_failure', output)
    assert run(tmp_path)[0] not in (0, 5), "a run in one process ends, too"


def test_timeout_of_the_command_line_counts(tmp_path: Path) -> None:
    """As in `make chaos`, whose tests may take an hour."""
    (tmp_path / "test_it.py").write_text("import time\ndef test_that_takes_longer_than_the_configured_timeout(): time.sleep(3)\n")
    assert run(tmp_path, "--timeout", "60")[0] == 0


def test_replacement_that_finds_other_tests_ends_the_run(tmp_path: Path) -> None:
    crashes = "import os, pathlib, pytest\nmark = pathlib.Path(__file__).with_name('mark')\n"
    crashes += "@pytest.mark.parametrize('number', range(3) if mark.exists() else range(4))\ndef test_it(number):\n"
    (tmp_path / "test_it.py").write_text(f"{crashes}    mark.touch()\n    os.kill(os.getpid(), 9)\n", "utf-8")
    code, output = run(tmp_path, "-n", "1", "--dist", "loadfile")
    assert code not in (0, 1, 5), output
    assert "has found other tests" in output
