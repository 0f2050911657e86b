"""Runs the tests of one or more tiers in parallel, and then, in one process, those that must run alone: `make test` and the like.

    python tests/tiers.py fast medium [--coverage] [--recheck] [ARGUMENT OF PYTEST ...]
    python tests/tiers.py wide [--parts=NAME,NAME | --since=REVISION] [ARGUMENT OF PYTEST ...]

A module runs in one process; those that may take longest start first. WORKERS sets the number of processes. The defaults were
measured on two cores: fast tests mostly compute, medium ones mostly wait.

With --recheck, as in CI, at most two tests that fail beside others run again alone, three times. If they pass each time, the
machine was too busy for a limit of theirs: they are named at the end, to be fixed, and the run passes.
"""

from __future__ import annotations

import collections
import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

import wide_parts

ROOT = Path(__file__).parents[1]
LAST_FAILED = ROOT / ".pytest_cache" / "v" / "cache" / "lastfailed"
"""Written by pytest."""
TIERS = {
    "fast": "not medium and not slow and not wide",
    "medium": "medium and not slow and not wide",
    "slow": "slow and not wide",
    "wide": "wide",
}
"""What each tier selects, as an expression of pytest's -m."""
ELSEWHERE = "not kind and (quick or not acceptance)"
"""Tests of no tier that `make acceptance` runs, and those on a cluster in docker, are left out."""
WORKERS_PER_CORE = {"fast": 1.5, "medium": 2.0, "slow": 1.5, "wide": 1.5}
"""Slow tests start programs that compute: with two of them per core, limits of time are missed, and nothing ends sooner."""
MOST_UNSTABLE, ATTEMPTS = 2, 3
NOT_COMPARED = "TRAINWRIGHT_NOT_COMPARED"
"""Names the file that pytest adds a line to for each test that it skips because a part of the shared folder is missing."""
GROUPS = {
    "tests/components/": "kfp",
    "tests/pipelines/": "kfp",
    "tests/ui/form/": "kfp",
    "tests/test_expressions_in_linear_time.py": "kfp",
    "tests/dags/": "airflow",
    "tests/operators/": "airflow",
    "tests/checkpoints/test_merge_adapter.py": "torch",
    "tests/evaluation/": "torch",
    "tests/initializers/test_columns.py": "torch",
    "tests/initializers/test_dataset.py": "torch",
    "tests/initializers/test_model_files.py": "torch",
    "tests/initializers/test_split_names.py": "torch",
    "tests/quickstart/test_base_model.py": "torch",
}
"""Tests by what they import, which takes up to ten seconds: one process imports it, not each."""
PASSED, FAILED, NONE_SELECTED = 0, 1, 5
"""Exit codes of pytest. All others mean that it did not get to the end: interrupted, misused, broken."""


def main(arguments: Sequence[str]) -> int:
    """Run the tiers that are named first; all other arguments are pytest's. Returns its exit code."""
    tiers = list(itertools.takewhile(TIERS.__contains__, arguments))
    if not tiers:
        print(f"tests/tiers.py: the first argument must be a tier: {', '.join(TIERS)}", file=sys.stderr)
        return 4
    if tiers == ["wide"]:
        return run_parts(arguments[1:])
    return run_tests(" or ".join(f"({TIERS[name]})" for name in tiers), tiers, arguments[len(tiers) :])


def run_parts(arguments: Sequence[str]) -> int:
    """Run parts of the tier `wide`, all by default: their tests, then the targets of make that belong to them."""
    parts = chosen_parts(arguments)
    if unknown := [part for part in parts if part not in wide_parts.PARTS]:
        print(f"tests/tiers.py: no part is named {', '.join(unknown)}; parts: {', '.join(wide_parts.PARTS)}", file=sys.stderr)
        return 4
    print(f"parts: {', '.join(parts) or 'none is asked for by these changes'}", flush=True)
    if not parts:
        return PASSED
    more = [argument for argument in arguments if not argument.startswith(("--parts=", "--since="))]
    codes = [run_tests(wide_parts.expression(parts), ["wide"], more)]
    targets = [target for part in parts if (target := wide_parts.PARTS[part].target)]
    if codes[0] in (PASSED, NONE_SELECTED):
        codes += [subprocess.run(["make", target], cwd=ROOT, check=False).returncode for target in targets]
    return exit_code(codes)


def run_tests(selected: str, tiers: Sequence[str], arguments: Sequence[str]) -> int:
    """Run the tests that an expression selects, in as many processes as the tiers allow. Returns pytest's exit code."""
    more = [argument for argument in arguments if argument not in ("--coverage", "--recheck")]
    coverage = ["--cov", "--cov-report="] if "--coverage" in arguments else []
    modules = [] if names_paths(more) else modules_with_tests_alone()
    parallel = ["-n", str(workers(tiers)), "--dist", "loadfile", "--no-loadscope-reorder"]  # conftest.py has the order
    LAST_FAILED.unlink(missing_ok=True)  # it has those of earlier runs, too
    codes = [_pytest(*parallel, "-m", f"({selected}) and not alone and {ELSEWHERE}", *coverage, *more)]
    unstable = failed_tests() if codes == [FAILED] and "--recheck" in arguments else []
    if 0 < len(unstable) <= MOST_UNSTABLE:
        codes = [_pytest("-q", *unstable) for _ in range(ATTEMPTS)]
    if codes[0] in (PASSED, FAILED, NONE_SELECTED) and tiers != ["fast"]:
        appended = ["--cov-append"] if coverage else []
        codes.append(_pytest("-m", f"({selected}) and alone and {ELSEWHERE}", *coverage, *appended, *more, *modules))
    if coverage:
        subprocess.run([sys.executable, "-m", "coverage", "report", "--skip-covered"], cwd=ROOT, check=False)
    code = exit_code(codes)
    if unstable and code == PASSED:
        print(f"UNSTABLE: failed beside others and passed {ATTEMPTS} times alone: {', '.join(unstable)}")
    print(end=not_compared(_skipped()))
    return code


def chosen_parts(arguments: Sequence[str]) -> list[str]:
    """Return the parts that --parts names, those that the changes --since a revision ask for, or all."""
    for argument in arguments:
        name, _, value = argument.partition("=")
        if name == "--parts":
            return value.replace(",", " ").split() or [value]
        if name == "--since":
            return wide_parts.parts_for(wide_parts.changed_since(value))
    return list(wide_parts.PARTS)


def failed_tests() -> list[str]:
    """The tests that have failed since LAST_FAILED was removed. Modules that could not be imported are among them."""
    return sorted(json.loads(LAST_FAILED.read_text("utf-8"))) if LAST_FAILED.exists() else []


def workers(tiers: Sequence[str]) -> int:
    """How many processes run the tests of these tiers."""
    given = os.environ.get("WORKERS")
    return int(given) if given else round((os.cpu_count() or 1) * max(WORKERS_PER_CORE[name] for name in tiers))


def names_paths(arguments: Sequence[str]) -> bool:
    """Whether the arguments of pytest name files, folders or tests."""
    return any((ROOT / argument.partition("::")[0]).exists() for argument in arguments if not argument.startswith("-"))


def modules_with_tests_alone() -> list[str]:
    """The modules in which a test has the mark: collecting all others a second time takes longer than running these."""
    return sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py") if writes_alone(path))


def group_of(test: str) -> str:
    """Return the group of a test, whose modules run in one process; empty if its module is not in a group."""
    return next((group for start, group in GROUPS.items() if test.startswith(start)), "")


def writes_alone(module: Path) -> bool:
    """Whether a module writes the mark out."""
    return re.search(r"\bmark\.alone\b", module.read_text("utf-8")) is not None


def never_runs(marks: Collection[str], module: Path, parts: Collection[str] = ()) -> str:
    """Why no run of `main` would select a test with these marks and parts, and what to do; empty if one does."""
    if unknown := set(parts) - wide_parts.PARTS.keys():
        return f"no part of the tier wide is named {', '.join(sorted(unknown))}; see tests/wide_parts.py"
    if "alone" not in marks:
        return ""
    if not {"medium", "slow"} & set(marks):
        return "alone needs medium or slow beside it; fast tests only run in parallel"
    return "" if writes_alone(module) else "write pytest.mark.alone in its module, so that tests/tiers.py finds it"


def exit_code(codes: Sequence[int]) -> int:
    """One exit code for several runs: the worst, where a run that selected no test counts only if no other did."""
    return max((code for code in codes if code not in (PASSED, NONE_SELECTED)), default=min(codes))


def not_compared(file: Path) -> str:
    """One line with what the tests in this file would have been compared with, empty if there are none. Removes the file."""
    counts = collections.Counter(file.read_text("utf-8").splitlines() if file.exists() else ())
    file.unlink(missing_ok=True)
    parts = [f"{what} ({count} test{'s' if count > 1 else ''})" for what, count in sorted(counts.items())]
    folder = os.environ.get("TRAINWRIGHT_SHARED") or "../shared"
    lacks = "is missing" if not (ROOT / folder).is_dir() else "does not have them"
    how = f"because {folder} {lacks}; set TRAINWRIGHT_SHARED to a folder that has them"
    return f"Not compared with {', '.join(parts)}, {how}.\n" if parts else ""


def _skipped() -> Path:
    return ROOT / "build" / f"not-compared-{os.getpid()}"


def _pytest(*arguments: str) -> int:
    environment = {**os.environ, NOT_COMPARED: str(_skipped())}
    process = subprocess.Popen([sys.executable, "-m", "pytest", *arguments], cwd=ROOT, env=environment)
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:  # pytest got it too: it stops its tests and reports what it has
            continue


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
