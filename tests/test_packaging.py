"""The wheel: it holds the tree, no more and no less, and what people import is importable from it alone."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = {"trainwright": "trainwright", "components": "trainwright/components", "pipelines": "trainwright/pipelines"}
FOLDERS |= {"quickstart": "trainwright/quickstart", "operators": "trainwright/operators", "dags": "trainwright/example_dags"}
DATA = (".py", ".yaml", ".md", ".typed", ".jsonl", ".txt")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out, tree = tmp_path_factory.mktemp("wheel"), tmp_path_factory.mktemp("tree") / "trainwright"
    # From a copy: setuptools would take files of an earlier build along.
    left_out = (".venv", ".clients", ".git", "runs", "build", "*.egg-info", "__pycache__", ".*_cache", ".hypothesis")
    ignored = shutil.ignore_patterns(*left_out)
    shutil.copytree(ROOT, tree, ignore=ignored)
    command = [
        sys.executable,
        "-m",
        "uv",
        "build",
        "--wheel",
        "--quiet",
        "--no-build-isolation",
        "--out-dir",
        str(out),
        str(tree),
    ]
    if subprocess.run([sys.executable, "-m", "uv", "--version"], capture_output=True, check=False).returncode != 0:
        pytest.skip("uv is not in this environment; `make test` installs it")
    subprocess.run(command, check=True, capture_output=True)
    return next(out.glob("*.whl"))


def installed_as(path: Path) -> str:
    """Where a file of the tree lies in the wheel: components/train/x.py -> trainwright/components/train_component/x.py."""
    top, *rest = path.relative_to(ROOT).parts
    if top in ("components", "pipelines") and len(rest) > 1:
        rest[0] += "_component" if top == "components" else "_pipeline"
    return "/".join([FOLDERS[top], *rest])


@pytest.mark.medium
def test_the_wheel_holds_the_tree(wheel: Path) -> None:
    tree = {
        installed_as(path)
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and path.suffix in DATA and "__pycache__" not in path.parts and not path.parent.is_symlink()
    }
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert held == tree


@pytest.mark.medium
def test_the_names_that_people_import(wheel: Path, tmp_path: Path) -> None:
    """From the wheel alone: its contents come before the checkout, which is not in the path."""
    zipfile.ZipFile(wheel).extractall(tmp_path)
    code = (
        "import trainwright.components as c, trainwright.pipelines as p, trainwright.cli, trainwright.materialize, trainwright.api\n"
        "assert callable(c.train.python_func) and c.evaluate and c.export_checkpoint and c.initialize_dataset and c.initialize_model\n"
        "assert p.finetune and trainwright.cli.app and trainwright.materialize.materialize and trainwright.api.admit\n"
        "import trainwright.components.train_component.component, trainwright.runtimes as r, os\n"
        "assert {x['metadata']['name'] for x in r.bundled_runtimes()} >= {'torch-distributed', 'trl-sft'}\n"
        "print(os.path.dirname(trainwright.api.__file__))"
    )
    # -S keeps the editable install (a .pth file) out; the dependencies come by path.
    site = next(path for path in sys.path if path.endswith("site-packages"))
    env = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{site}"}
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, env=env, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(tmp_path / "trainwright" / "api")
