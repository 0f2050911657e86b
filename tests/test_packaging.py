"""The wheel: it holds the tree, no more and no less, and what people import is importable from it alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from support.built_wheel import unpacked_wheel
from support.client_environments import ROOT

FOLDERS = {"trainwright": "trainwright", "components": "trainwright/components", "pipelines": "trainwright/pipelines"}
FOLDERS |= {"quickstart": "trainwright/quickstart", "operators": "trainwright/operators", "dags": "trainwright/example_dags"}
DATA = (".py", ".yaml", ".md", ".typed", ".json", ".jsonl", ".txt", ".html", ".css", ".js", ".svg")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the contents of the wheel."""
    return unpacked_wheel(tmp_path_factory.mktemp("wheel"))


def test_checkouts_of_workflows_leave_no_token_behind() -> None:
    workflows = [yaml.safe_load(path.read_text("utf-8")) for path in (ROOT / ".github" / "workflows").glob("*.yml")]
    steps = [step for workflow in workflows for job in workflow["jobs"].values() for step in job["steps"]]
    checkouts = [step for step in steps if step.get("uses", "").startswith("actions/checkout")]
    assert checkouts
    assert all(step["with"]["persist-credentials"] is False for step in checkouts)
    assert all(workflow["permissions"] == {"contents": "read"} for workflow in workflows)


@pytest.mark.medium
def test_the_wheel_holds_the_tree(installed: Path) -> None:
    tree = {
        f"{place}/{path.relative_to(ROOT / folder).as_posix()}"
        for folder, place in FOLDERS.items()
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and path.suffix in DATA and "__pycache__" not in path.parts
    }
    paths = (path.relative_to(installed) for path in installed.rglob("*") if path.is_file())
    held = {path.as_posix() for path in paths if not path.parts[0].endswith(".dist-info")}
    assert held == tree
    vendor = {path.name for path in (installed / "trainwright/ui/static/vendor").iterdir()}
    scripts = {"htm.module.js", "preact.hooks.module.js", "preact.module.js", "uPlot.esm.js", "uPlot.min.css"}
    assert vendor == {*scripts, "htm.LICENSE.txt", "preact.LICENSE.txt", "uPlot.LICENSE.txt", "package-lock.json"}


@pytest.mark.medium
def test_the_names_that_people_import(installed: Path, tmp_path: Path) -> None:
    """From the wheel alone: its contents come before the checkout, which is not in the path."""
    code = (
        "import trainwright.components as c, trainwright.pipelines as p, trainwright.cli, trainwright.materialize, trainwright.api\n"
        "assert callable(c.train.python_func) and c.evaluate and c.export_checkpoint and c.initialize_dataset and c.initialize_model\n"
        "assert p.finetune and trainwright.cli.app and trainwright.materialize.materialize and trainwright.api.admit\n"
        "import trainwright.components.train.component, trainwright.runtimes as r, os\n"
        "assert {x['metadata']['name'] for x in r.bundled_runtimes()} >= {'torch-distributed', 'trl-sft'}\n"
        "print(os.path.dirname(trainwright.api.__file__))"
    )
    # -S keeps the editable install (a .pth file) out; the dependencies come by path.
    site = next(path for path in sys.path if path.endswith("site-packages"))
    env = {**os.environ, "PYTHONPATH": f"{installed}{os.pathsep}{site}", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, env=env, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(installed / "trainwright" / "api")
