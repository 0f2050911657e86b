"""A folder `trainwright` in the current directory is not imported in place of the installed package."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from trainwright.cluster import connect
from trainwright.embedded.home import Home
from trainwright.embedded.lifecycle import stop

ROOT = Path(__file__).parents[2]
IN_PODS = (  # what a user's container runs keeps the paths that it has; a warm parent removes its own folder from them
    "trainwright/runtimes/launch.py",
    "trainwright/controlplane/node/warm_start/warm_parent.py",
)


def commands(path: Path) -> list[ast.List]:
    """The lists that begin with this very interpreter."""
    lists = [node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.List) and node.elts]
    return [node for node in lists if ast.unparse(node.elts[0]) == "sys.executable"]


@pytest.mark.medium
def test_every_python_process_is_started_without_the_current_directory_on_its_path() -> None:
    found = 0
    for folder in ("trainwright", "components", "operators", "pipelines", "dags", "quickstart"):
        for path in (ROOT / folder).rglob("*.py"):
            name = str(path.relative_to(ROOT))
            for command in commands(path) if name not in IN_PODS and not path.is_symlink() else []:
                assert {"'-P'", "'-I'"} & {*ast.unparse(command).strip("[]").split(", ")}, f"{name}:{command.lineno}"
                found += 1
    assert found >= 5


@pytest.mark.medium
def test_the_control_plane_starts_beside_a_folder_of_that_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "trainwright").mkdir()
    (tmp_path / "trainwright" / "__init__.py").write_text("")
    home = Home(tmp_path / "home")
    command = [Path(sys.executable).with_name("trainwright"), "up", "--home", home.path]
    try:
        done = subprocess.run(list(map(str, command)), cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr
        stop(home)
        monkeypatch.chdir(tmp_path)
        assert connect(embedded=home.path).origin == "embedded control plane"
    finally:
        stop(home)
