"""What the recorded Trainer built or refused, we build or refuse, for the policies that are built so far: none, plain and torch."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from typer.testing import CliRunner

from trainwright.cli import app

# Cases of these areas that need what later work builds.
LATER = {
    "over-image-empty": "an explicitly empty image",
    "patch-mpi-both-jobs": "the mpi policy",
    "patch-volcano-priority": "pod groups",
    "patch-unknown-job-empty": "a patch with a job that is empty",
    "tmpl-bad-port": "the real system admits a port beyond 65535 and fails later",
    "tmpl-coordinator": "the recording drops zeros",
    "tmpl-ephemeral-values": "the recording drops empty values",
    "tmpl-failure-rule-unnamed": "rules of CEL on names",
    "tmpl-replicas-zero-unlabelled": "the recording drops zeros",
    "tmpl-depends-and-in-order": "rules of CEL on the runtime's JobSet",
    "torch-port-two-unnamed": "the real system cannot build it; here the first unnamed port gives way",
    "torch-port-named": "the real system fills in the protocol",
}
AREAS = ("init", "meta", "nopol", "over", "patch", "plain", "tmpl", "torch")


def load_compare(folder: Path) -> ModuleType:
    """The comparison that comes with the recordings."""
    spec = importlib.util.spec_from_file_location("compare", folder / "compare.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("area", AREAS)
def test_recorded_cases(area: str, shared: Path) -> None:
    folder = shared / "goldens" / "materialize"
    compare = load_compare(folder)
    cases = [path for path in sorted((folder / "cases").glob(f"{area}-*")) if path.name not in LATER]
    assert len(cases) >= 5
    wrong = {case.name: problem for case in cases if (problem := difference(compare, case))}
    assert not wrong, json.dumps(wrong, indent=1)[:4000]


def difference(compare: Any, case: Path) -> str:
    """How our answer to a case differs from the recording; empty when it does not."""
    answer = CliRunner().invoke(app, ["materialize", "-f", str(case / "input.yaml"), "-o", "json"])
    if (case / "refused.yaml").exists() or (case / "failed.yaml").exists():
        return "" if answer.exit_code == 2 else f"should be refused, exit {answer.exit_code}"
    if (case / "events.yaml").exists() and answer.exit_code == 2:
        return ""
    if answer.exit_code != 0:
        return f"exit {answer.exit_code}: {answer.output[:200]}"
    want = compare.load(case / "objects.yaml")
    want = want[0].get("items", want) if want and want[0].get("kind") == "List" else want
    return "; ".join(compare.diff(compare.objects(want), compare.objects(json.loads(answer.stdout)["items"]))[:3])
