"""The parts of `make test-wide`, and which changes ask for each: CI runs none of them, whoever changes such a file does.

A test belongs to a part by its mark, `pytest.mark.wide(part="airflow")`, which stands beside that of its tier. CONTRIBUTING.md has
this table; a test compares the two.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Part:
    """What a part covers, and the files that ask for it: patterns, where a folder stands for all that is in it."""

    covers: str
    asked_for_by: tuple[str, ...]
    target: str = ""
    """A target of the Makefile that belongs to the part, beside the tests with its mark."""


PARTS = {
    "acceptance": Part(
        "`make acceptance`: all scenes",
        ("trainwright/controlplane", "trainwright/embedded", "trainwright/trainer", "trainwright/submission", "tests/acceptance"),
        "acceptance",
    ),
    "airflow": Part(
        "Airflow 3.1 and 3.2; the scenes of `tests/e2e/test_airflow_matrix.py` beyond four; the sweep as a DAG; example DAGs",
        (
            "operators",
            "dags",
            "trainwright/jobs/wait",
            "tests/airflow_versions",
            "tests/support/airflow_minors.py",
            "deploy/constraints",
            "pyproject.toml",
        ),
    ),
    "browser": Part("other widths and colours of the page", ("trainwright/ui", "tests/ui", "package-lock.json")),
    "clients": Part(
        "the oldest and the newest client of Kubernetes",
        ("trainwright/cluster", "trainwright/controlplane/apiserver", "tests/conformance", "pyproject.toml"),
    ),
    "data-tools": Part(
        "DVC and Ray; the pipeline and the DAG `full_pipeline`",
        (
            "trainwright/tools",
            "components/preprocess_dataset",
            "components/pull_dvc_data",
            "pipelines/full_pipeline",
            "dags/full_pipeline.py",
            "tests/tools",
        ),
    ),
    "faults": Part(
        "40 schedules of faults instead of 8",
        (
            "trainwright/cluster",
            "trainwright/jobs/submit",
            "trainwright/jobs/wait",
            "trainwright/checkpoints",
            "trainwright/storage",
            "tests/faults",
        ),
    ),
    "formats": Part(
        "real checkpoints of Trainer, FSDP, DCP and, where it is installed, DeepSpeed, and trainings that resume from them",
        ("trainwright/checkpoints/formats", "trainwright/checkpoints/find.py"),
    ),
    "kfp": Part(
        "kfp 2.16 and 2.17, each with the oldest client",
        ("components", "pipelines", "trainwright/pipeline_runs", "tests/kfp_versions", "pyproject.toml"),
    ),
    "lm-eval": Part("lm-evaluation-harness", ("trainwright/evaluation", "trainwright/tools", "tests/evaluation")),
    "registries": Part(
        "clients of MLflow, Model Registry and the Hub; MLflow, W&B and TensorBoard as trackers",
        (
            "trainwright/checkpoints/registries",
            "trainwright/tracking",
            "trainwright/tools",
            "tests/checkpoints/registries",
            "tests/tracking",
        ),
    ),
    "runtimes": Part(
        "`make runtimes`: a training on each stock runtime; launchers and the README's examples with both orchestrators",
        (
            "trainwright/runtimes",
            "trainwright/materialize",
            "trainwright/controlplane/environments",
            "trainwright/datacache",
            "bench/runtimes",
        ),
        "runtimes",
    ),
    "suite": Part(
        "how tests are run: processes that crash or hang, tiers",
        (
            "tests/tiers.py",
            "tests/conftest.py",
            "tests/support/crashed_workers.py",
            "tests/support/hung_tests.py",
            "pyproject.toml",
        ),
    ),
    "trl": Part(
        "DPO and KTO with the other method each",
        (
            "trainwright/jobs/trainers",
            "trainwright/checkpoints/resume_point.py",
            "trainwright/evaluation",
            "tests/support/trl_run.py",
        ),
    ),
}


def parts_for(changed: Iterable[str]) -> list[str]:
    """The parts that these files, paths below the root, ask for. A module of tests asks for the parts that its marks name."""
    files = list(changed)
    marked = {part for file in files for part in marked_parts(ROOT / file)}
    return [
        name
        for name, part in PARTS.items()
        if name in marked or any(_is_in(file, pattern) for file in files for pattern in part.asked_for_by)
    ]


def marked_parts(module: Path) -> set[str]:
    """The parts that marks in a module of tests name; none if the file is no such module, or gone."""
    is_module = fnmatch(module.name, "test_*.py") and module.is_file()
    return set(re.findall(r'mark\.wide\(part="([\w-]+)"', module.read_text("utf-8"))) if is_module else set()


def changed_since(revision: str) -> list[str]:
    """The files that this branch has changed since it left a revision, old names, uncommitted and new ones included.

    Raises ValueError if git knows no such commit, CalledProcessError if it fails otherwise.
    """
    commit = _git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}", may_fail=True)
    if not commit:
        raise ValueError(f"{revision} names no commit; give a branch, a tag or a hash")
    base = _git("merge-base", commit[0], "HEAD", may_fail=True) or commit  # none where the history ends before it
    return [
        *_git("diff", "--name-only", "--no-renames", "-z", base[0], "--"),
        *_git("ls-files", "-z", "--others", "--exclude-standard"),
    ]


def _git(*arguments: str, may_fail: bool = False) -> list[str]:
    """The lines that git prints, with -z the names; none if it may fail and does. Raises CalledProcessError."""
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], stdout=subprocess.PIPE, text=True, check=not may_fail)
    return [] if done.returncode else [part for part in done.stdout.split("\0" if "-z" in arguments else "\n") if part]


def expression(parts: Sequence[str]) -> str:
    """What selects the tests of these parts, as an expression of pytest's -m."""
    return " or ".join(f"wide(part='{part}')" for part in parts)


def table() -> str:
    """The parts as a table in Markdown."""
    rows = [
        f"| `{name}` | {part.covers} | {', '.join(f'`{path}`' for path in part.asked_for_by)} |" for name, part in PARTS.items()
    ]
    return "\n".join(["| part | covers | asked for by changes in |", "|---|---|---|", *rows])


def _is_in(file: str, pattern: str) -> bool:
    return fnmatch(file, pattern) or fnmatch(file, f"{pattern}/*")
