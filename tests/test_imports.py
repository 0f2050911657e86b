"""Directions of imports as pyproject.toml declares them, and the heavy frameworks that imports must not load."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import import_contracts
from installed_tree import link_installed_tree

ROOT = Path(__file__).parents[1]
PACKAGES = sorted(path.parent.name for path in (ROOT / "trainwright").glob("*/__init__.py"))


def test_imports_keep_their_directions() -> None:
    done = import_contracts.check()
    assert done.returncode == 0, done.stdout


def test_a_broken_direction_fails(tmp_path: Path) -> None:
    link_installed_tree(tmp_path)
    module = tmp_path / "trainwright" / "api" / "times.py"
    text = module.read_text("utf-8")
    module.unlink()
    module.write_text(f"{text}\n\ndef late() -> None:\n    import trainwright.cluster.connect\n", "utf-8")
    done = import_contracts.lint(tmp_path)
    assert done.returncode != 0
    assert "trainwright.api.times -> trainwright.cluster.connect" in done.stdout


def test_importing_the_library_loads_nothing_heavy() -> None:
    modules = [f"trainwright.{floor}" for floor in PACKAGES] + ["trainwright.evaluation.program", "trainwright.steps.evaluate"]
    code = f"import sys\nfor m in {modules!r}: __import__(m)\nprint(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert not loaded & {"kubernetes", "torch", "transformers", "kfp", "airflow", "datasets", "huggingface_hub", "matplotlib"}


def test_importing_components_loads_kfp_but_no_kubernetes_of_ours() -> None:
    code = "import sys, trainwright.components\nprint(*(m for m in sys.modules if m.startswith('trainwright')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not [name for name in done.stdout.split() if name.startswith(("trainwright.cluster", "trainwright.jobs"))]
