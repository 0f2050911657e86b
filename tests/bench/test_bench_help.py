"""Each benchmark explains itself when it is asked for help, instead of running."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"


@pytest.mark.medium
@pytest.mark.parametrize("script", sorted(BENCH.glob("*.py")), ids=lambda path: path.stem)
def test_help_prints_usage_and_purpose_only(script: Path, tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, script, "--help"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    usage, purpose = done.stdout.split("\n\n")[:2]
    assert usage.startswith(f"usage: {script.name}")
    assert purpose.startswith("Benchmarks ")
    assert list(tmp_path.iterdir()) == []
