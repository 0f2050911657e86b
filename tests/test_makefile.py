"""What `make clean` removes: what can be made again, and no run of a user's; and which cluster `make acceptance` plays on."""

from __future__ import annotations

import os
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


def acceptance_options(*words: str, **env: str) -> dict[str, str]:
    """What `make acceptance` tells the suite; `env; true` stands for Python."""
    command = ["make", "-s", "-o", ".venv/.ready-dev", "acceptance", "PY=env; true", *words]
    others = {name: value for name, value in os.environ.items() if not name.startswith("TRAINWRIGHT_ACCEPTANCE_")}
    done = subprocess.run(command, cwd=ROOT, env={**others, **env}, capture_output=True, text=True, check=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("TRAINWRIGHT_ACCEPTANCE_")]
    return {
        key.removeprefix("TRAINWRIGHT_ACCEPTANCE_"): value for key, _, value in (line.partition("=") for line in lines) if value
    }


def test_acceptance_plays_on_no_cluster_of_the_environment() -> None:
    assert acceptance_options(KUBECONFIG="/of/the/user") == {"AIRFLOW": "yes"}


def test_acceptance_options_reach_the_suite_unexpanded() -> None:
    restart = 'docker pause node; sleep $1; echo "it\'s back"'
    given = acceptance_options("KUBECONFIG=/given", "IMAGE=r/{image}:1", f"RESTART={restart}")
    assert given == {"KUBECONFIG": "/given", "IMAGE": "r/{image}:1", "RESTART": restart}
