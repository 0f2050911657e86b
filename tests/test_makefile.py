"""What `make clean` removes: what can be made again, and no run of a user's."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


def removed_by(target: str) -> set[str]:
    done = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True, check=True)
    lines = [line.split() for line in done.stdout.splitlines() if line.startswith("rm ")]
    return {word for words in lines for word in words[1:] if not word.startswith("-")}


def test_clean_leaves_the_runs_alone() -> None:
    removed = removed_by("clean")
    assert ".venv" in removed
    assert not {word for word in removed if word.split("/")[0] in ("runs", ".", "..", "*", "")}


def test_runs_are_removed_by_name_and_listed_first() -> None:
    assert removed_by("clean-runs") == {"runs"}
    shown = subprocess.run(["make", "-n", "clean-runs"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert shown.index("du ") < shown.index("rm ")


def test_every_phony_target_has_a_rule() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    (phony,) = [line for line in makefile.splitlines() if line.startswith(".PHONY:")]
    rules = {line.partition(":")[0] for line in makefile.splitlines() if line[:1].isalpha()}
    assert set(phony.split()[1:]) <= rules
