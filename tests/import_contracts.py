"""Checks the directions of imports that pyproject.toml declares, on the packages as they install."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from installed_tree import ROOT, link_installed_tree


def lint(tree: Path) -> subprocess.CompletedProcess[str]:
    """Run import-linter on the packages below `tree`; its output names every broken contract with the imports that break it."""
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()"]
    command += ["--config", str(ROOT / "pyproject.toml"), "--no-cache", "--no-logo"]
    return subprocess.run(
        command, cwd=tree, env={**os.environ, "PYTHONPATH": str(tree)}, capture_output=True, text=True, check=False
    )


def check() -> subprocess.CompletedProcess[str]:
    """Run import-linter on this project."""
    with tempfile.TemporaryDirectory() as tree:
        link_installed_tree(Path(tree))
        return lint(Path(tree))


if __name__ == "__main__":
    done = check()
    if done.returncode:
        print(done.stdout + done.stderr)
    sys.exit(done.returncode)
