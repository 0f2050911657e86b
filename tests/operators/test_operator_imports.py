"""What parsing a DAG costs: the operators bring leaf modules alone, and nothing of pydantic or Kubernetes."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.medium
LEAVES = {
    "trainwright",
    "trainwright.jobs",
    "trainwright.jobs.request",
    "trainwright.jobs.state",
    "trainwright.jobs.state.identity",
    "trainwright.jobs.state.run_folder",
    "trainwright.jobs.state.label_values",
    "trainwright.jobs.request.setting_names",
}
HEAVY = ("kubernetes", "yaml", "torch", "kfp")


def loaded(statement: str) -> set[str]:
    """Our modules after a statement, and what else it loads besides Airflow's own SDK."""
    before = "import airflow.sdk, airflow.triggers.base, sys\nbefore = set(sys.modules)\n"
    code = f"{before}{statement}\nprint(*(m for m in sys.modules if m not in before or m.startswith('trainwright')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


def test_the_package_is_lazy() -> None:
    assert ours(loaded("import trainwright.operators")) <= {
        "trainwright",
        "trainwright.operators",
        "trainwright.operators.provider_info",
    }


def test_an_operator_loads_leaves() -> None:
    found = loaded("from trainwright.operators import TrainJobOperator")
    assert {name for name in ours(found) if not name.startswith("trainwright.operators")} == LEAVES
    assert not [name for name in found if name.split(".")[0] in HEAVY]


def ours(modules: set[str]) -> set[str]:
    return {name for name in modules if name.split(".")[0] == "trainwright"}
