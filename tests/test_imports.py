"""The floors: a module imports only from those below it, heavy frameworks stay out, and torch stays in its programs."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FLOORS = [
    "api",
    "migration",
    "runtimes",
    "materialize",
    "cluster",
    "jobs",
    "storage",
    "workspace",
    "initializers",
    "checkpoints",
    "evaluation",
    "steps",
    "controlplane",
    "cli",
]
EDGES = {
    "components": {"components"},
    "operators": {"operators"},
    "pipelines": {"pipelines", "components"},
    "dags": {"operators", "example_dags"},
    "quickstart": {"quickstart", "pipelines", "example_dags", "components"},
}


def imports_of(path: Path) -> set[str]:
    """The modules of ours that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in found if name == "trainwright" or name.startswith("trainwright.")}


def sources(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*.py") if not path.is_symlink()]


def test_every_package_has_its_floor() -> None:
    packages = {
        path.name for path in (ROOT / "trainwright").iterdir() if (path / "__init__.py").is_file() and not path.is_symlink()
    }
    assert packages == set(FLOORS)


@pytest.mark.parametrize("floor", FLOORS)
def test_a_floor_imports_only_from_those_below(floor: str) -> None:
    allowed = set(FLOORS[: FLOORS.index(floor) + 1])
    for path in sources(ROOT / "trainwright" / floor):
        for name in imports_of(path):
            package = name.split(".")[1] if "." in name else ""
            assert package in allowed | {"", "__version__"}, f"{path.relative_to(ROOT)} imports {name}"


@pytest.mark.parametrize("edge", sorted(EDGES))
def test_an_edge_imports_the_library_and_what_it_may_chain(edge: str) -> None:
    others = {"components", "operators", "pipelines", "example_dags", "quickstart"} - EDGES[edge]
    for path in sources(ROOT / edge):
        for name in imports_of(path):
            assert name.split(".")[1:2] not in [[other] for other in others], f"{path.relative_to(ROOT)} imports {name}"


def test_importing_the_library_loads_nothing_heavy() -> None:
    modules = [f"trainwright.{floor}" for floor in FLOORS] + ["trainwright.evaluation.program", "trainwright.steps.evaluate"]
    code = f"import sys\nfor m in {modules!r}: __import__(m)\nprint(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert not loaded & {"kubernetes", "torch", "transformers", "kfp", "airflow", "datasets", "huggingface_hub", "matplotlib"}


def test_importing_components_loads_kfp_but_no_kubernetes_of_ours() -> None:
    code = "import sys, trainwright.components\nprint(*(m for m in sys.modules if m.startswith('trainwright')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not [name for name in done.stdout.split() if name.startswith(("trainwright.cluster", "trainwright.jobs"))]
