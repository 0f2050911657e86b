"""Each benchmark explains itself when it is asked for help, instead of running."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"
HELPS = """
import contextlib, io, json, runpy, sys
said = {}
for script in sys.argv[1:]:
    sys.argv, out = [script, "--help"], io.StringIO()
    try:
        with contextlib.redirect_stdout(out):
            runpy.run_path(script, run_name="__main__")
    except SystemExit as ended:
        said[script] = (ended.code, out.getvalue())
print(json.dumps(said))
"""
"""Asks all in one process, which imports what they share once."""


@pytest.mark.medium
def test_help_of_each_benchmark_prints_usage_and_purpose_only(tmp_path: Path) -> None:
    scripts = sorted(BENCH.glob("*.py"))
    command = [sys.executable, "-c", HELPS, *map(str, scripts)]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True, env={"PYTHONPATH": str(BENCH)}
    )
    said = json.loads(done.stdout)
    assert sorted(said) == [str(script) for script in scripts]
    for script in scripts:
        code, text = said[str(script)]
        usage, purpose = text.split("\n\n")[:2]
        assert code == 0
        assert usage.startswith(f"usage: {script.name}")
        assert purpose.startswith("Benchmarks ")
    assert done.stderr == ""
    assert list(tmp_path.iterdir()) == []
