"""Directions of imports as pyproject.toml declares them, and the heavy frameworks that imports must not load."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EDGES = sorted(path.name for path in (ROOT / "trainwright").iterdir() if path.is_symlink())
PACKAGES = sorted({path.parent.name for path in (ROOT / "trainwright").glob("*/__init__.py")} - {*EDGES})


def lint(tree: Path) -> subprocess.CompletedProcess[str]:
    """Run import-linter on the packages below `tree`; its output names every broken contract with the imports that break it."""
    command = [Path(sys.executable).with_name("lint-imports"), "--no-cache", "--no-logo", ROOT / "pyproject.toml"]
    return subprocess.run(
        command, cwd=tree, env={**os.environ, "PYTHONPATH": str(tree)}, capture_output=True, text=True, check=False
    )


@pytest.mark.medium
def test_a_broken_direction_fails(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "trainwright", tmp_path / "trainwright", copy_function=os.symlink)
    module = tmp_path / "trainwright" / "api" / "times.py"
    text = module.read_text("utf-8")
    module.unlink()
    module.write_text(f"{text}\n\ndef late() -> None:\n    import trainwright.cluster.connect\n", "utf-8")
    done = lint(tmp_path)
    assert done.returncode != 0
    assert "trainwright.api.times -> trainwright.cluster.connect" in done.stdout


@pytest.mark.medium
def test_importing_the_library_loads_nothing_heavy() -> None:
    modules = [f"trainwright.{floor}" for floor in PACKAGES] + ["trainwright.evaluation.program", "trainwright.steps.evaluate"]
    code = f"import sys\nfor m in {modules!r}: __import__(m)\nprint(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert not loaded & {"kubernetes", "torch", "transformers", "kfp", "airflow", "datasets", "huggingface_hub", "matplotlib"}


@pytest.mark.medium
def test_importing_the_command_line_loads_no_chain_of_steps() -> None:
    code = "import sys, trainwright.cli.app\nprint(*(m for m in sys.modules if m.startswith('trainwright')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"trainwright.steps.fine_tuning", "trainwright.steps.evaluate"} & set(done.stdout.split())


@pytest.mark.medium
def test_importing_components_loads_declarations_of_settings_only() -> None:
    code = "import sys, trainwright.components.train.component\nassert callable(trainwright.components.train)\n"
    code += "print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = ("pydantic", "trainwright.cluster", "trainwright.controlplane", "trainwright.jobs.submit", "trainwright.jobs.wait")
    assert not [name for name in done.stdout.split() if name.startswith(heavy)]


@pytest.mark.medium
def test_importing_the_step_that_trains_loads_neither_the_emulator_nor_what_few_trainings_need() -> None:
    code = "import sys, trainwright.steps.training.submit, trainwright.jobs.request.checks\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    rare = ("trainwright.controlplane", "trainwright.embedded", "trainwright.datacache", "trainwright.migration")
    assert not [name for name in done.stdout.split() if name.startswith(rare)]


def test_a_checkout_in_the_current_folder_does_not_hide_the_package(tmp_path: Path) -> None:
    (tmp_path / "trainwright" / "trainwright").mkdir(parents=True)
    command = [sys.executable, "-c", "import trainwright; print(trainwright.__file__)"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(ROOT / "trainwright" / "__init__.py")


def test_modules_of_tests_import_no_other_test_module() -> None:
    modules = {path: path.read_text("utf-8") for path in (ROOT / "tests").rglob("*.py")}
    assert [str(path) for path, text in modules.items() if re.search(r"^(?:from|import) test_", text, re.MULTILINE)] == []


@pytest.mark.medium
@pytest.mark.wide(part="suite")
def test_module_of_tests_that_imports_a_heavy_package_when_collected_fails(tmp_path: Path) -> None:
    (tmp_path / "ray.py").touch()
    (tmp_path / "test_early.py").write_text("import ray\ndef test_it(): pass\n", "utf-8")
    (tmp_path / "test_late.py").write_text("def test_it():\n    import ray\n", "utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "conftest", "-p", "no:cacheprovider", "--rootdir", tmp_path]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    for module, code, said in (
        ("test_late.py", 0, "1 passed"),
        ("test_early.py", 2, "test_early.py imports ray when it is collected"),
    ):
        done = subprocess.run([*command, module], cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stdout + done.stderr
        assert said in done.stdout
