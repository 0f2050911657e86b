"""Runs the tests of one or more tiers in parallel, and then, in one process, those that must run alone: `make test` and the like.

    python tests/tiers.py fast medium [--coverage] [--recheck] [ARGUMENT OF PYTEST ...]
    python tests/tiers.py wide [--parts=NAME,NAME | --since=REVISION] [ARGUMENT OF PYTEST ...]

A module runs in one process; those that may take longest start first. WORKERS sets the number of processes. The defaults were
measured on two cores: fast tests mostly compute, medium ones mostly wait.

With --recheck, as in CI, at most two tests that fail beside others run again, without others: once with all of their module, in its
order, and twice alone. If they pass each time, the machine was too busy for a limit of theirs: they are named at the end, to be fixed,
and the run passes. What fails outside of the test itself (a fixture, a crash, an import) is not forgiven.
"""

from __future__ import annotations

import collections
import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import wide_parts

ROOT = Path(__file__).parents[1]
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
MOST_UNSTABLE, ATTEMPTS_ALONE = 2, 2
REPORT = "TRAINWRIGHT_TEST_REPORT"
"""Names the file that support/run_report.py writes."""
GROUPS = {
    "tests/components/": "kfp",
    "tests/pipelines/": "kfp",
    "tests/pipeline_runs/": "kfp",
    "tests/steps/test_run.py": "kfp",
    "tests/ui/form/": "kfp",
    "tests/test_expressions_in_linear_time.py": "kfp",
    "tests/dags/": "airflow",
    "tests/operators/": "airflow",
    "tests/checkpoints/registries/test_register_operator.py": "airflow",
    "tests/test_parameters.py": "airflow",
    "tests/checkpoints/test_foreign_settings.py": "torch",
    "tests/checkpoints/test_merge_adapter.py": "torch",
    "tests/checkpoints/test_special_tokens.py": "torch",
    "tests/evaluation/": "torch",
    "tests/initializers/test_columns.py": "torch",
    "tests/initializers/test_data_report.py": "torch",
    "tests/initializers/test_dataset.py": "torch",
    "tests/initializers/test_model_files.py": "torch",
    "tests/initializers/test_split_names.py": "torch",
    "tests/initializers/test_token_counts.py": "torch",
    "tests/quickstart/test_base_model.py": "torch",
    "tests/runtimes/test_trl_runtimes.py": "torch",
    "tests/text/test_chat_templates.py": "torch",
}
"""Tests by what they import, which takes up to ten seconds: one process imports it, not each."""
PASSED, FAILED, INTERRUPTED, MISUSED, NONE_SELECTED = 0, 1, 2, 4, 5
"""Exit codes of pytest."""
AT_THE_END = (PASSED, FAILED, NONE_SELECTED)
"""Those of a run that has come to its end."""


@dataclass(frozen=True)
class Run:
    """A run of pytest: its exit code, what failed with the phase that did, what passed, and what skipped tests are compared with."""

    code: int
    failed: Mapping[str, str] = field(default_factory=dict)
    passed: Collection[str] = ()
    not_compared: Sequence[str] = ()


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
    try:
        parts = chosen_parts(arguments)
    except ValueError as error:
        print(f"tests/tiers.py: {error}", file=sys.stderr)
        return MISUSED
    print(f"parts: {', '.join(parts) or 'none is asked for by these changes'}", flush=True)
    if not parts:
        return PASSED
    more = [argument for argument in arguments if not argument.startswith(("--parts=", "--since="))]
    codes = [run_tests(wide_parts.expression(parts), ["wide"], more)]
    targets = [target for part in parts if (target := wide_parts.PARTS[part].target)]
    if codes[0] in (PASSED, NONE_SELECTED) and "--collect-only" not in more:  # ARGS are for pytest, which targets do not call
        codes += [subprocess.run(["make", target, "ARGS="], cwd=ROOT, check=False).returncode for target in targets]
    return exit_code(codes)


def run_tests(selected: str, tiers: Sequence[str], arguments: Sequence[str]) -> int:
    """Run the tests that an expression selects, in as many processes as the tiers allow. Returns pytest's exit code."""
    more = [argument for argument in arguments if argument not in ("--coverage", "--recheck")]
    coverage = ["--cov", "--cov-report="] if "--coverage" in arguments else []
    modules, alone = ([], []) if names_paths(more) else (modules_of(tiers), modules_that(lambda text: writes(text, "alone")))
    parallel = ["-n", str(workers(tiers)), "--dist", "loadfile", "--no-loadscope-reorder"]  # conftest.py has the order
    beside_others = f"({selected}) and not alone and {ELSEWHERE}"
    runs = [_pytest(*parallel, "-m", beside_others, *coverage, *more, *modules)]
    unstable = unstable_tests(runs[0], beside_others) if "--recheck" in arguments else []
    if runs[0].code in AT_THE_END and tiers != ["fast"]:
        appended = ["--cov-append"] if coverage else []
        runs.append(_pytest("-m", f"({selected}) and alone and {ELSEWHERE}", *coverage, *appended, *more, *alone))
    if coverage:
        subprocess.run([sys.executable, "-m", "coverage", "report", "--skip-covered"], cwd=ROOT, check=False)
    code = exit_code([PASSED if unstable else runs[0].code, *(run.code for run in runs[1:])])
    print(end=summary(tiers, runs, unstable, code))
    return code


def unstable_tests(run: Run, selected: str) -> list[str]:
    """The tests for whose failure the machine was too busy, as far as further runs can tell; empty if the failure counts."""
    tests = sorted(run.failed)
    if run.code != FAILED or not 0 < len(tests) <= MOST_UNSTABLE or set(run.failed.values()) != {"call"}:
        return []
    modules = sorted({test.partition("::")[0] for test in tests})
    again = [_pytest("-q", "-m", selected, *modules), *(_pytest("-q", *tests) for _ in range(ATTEMPTS_ALONE))]
    return tests if all(each.code == PASSED and set(tests) <= set(each.passed) for each in again) else []


def summary(tiers: Sequence[str], runs: Sequence[Run], unstable: Sequence[str], code: int) -> str:
    """The last lines: what several runs came to, the unstable tests, and what was not compared."""
    lines = []
    if code == NONE_SELECTED:
        lines.append(f"No test of {' and '.join(tiers)} was selected; `.venv/bin/python -m pytest PATH` runs those of all tiers.")
    elif len(runs) > 1:
        passed, failed = (
            sum(len(part) for part in parts) for parts in zip(*((run.passed, run.failed) for run in runs), strict=True)
        )
        lines.append(f"{' and '.join(tiers)}: {passed} passed, {failed} failed")
    if unstable and code == PASSED:
        lines.append(f"UNSTABLE: failed beside others and passed {1 + ATTEMPTS_ALONE} times without: {', '.join(unstable)}")
    return "".join(f"{line}\n" for line in lines) + not_compared([what for run in runs for what in run.not_compared])


def chosen_parts(arguments: Sequence[str]) -> list[str]:
    """Return the parts that --parts names, those that the changes --since a revision ask for, or all. Raises ValueError."""
    chosen = [argument.partition("=") for argument in arguments if argument.startswith(("--parts=", "--since="))]
    match chosen:
        case []:
            return list(wide_parts.PARTS)
        case [("--since", _, revision)]:
            return wide_parts.parts_for(wide_parts.changed_since(revision))
        case [("--parts", _, value)]:
            names = value.replace(",", " ").split() or [value]
            if unknown := [name for name in names if name not in wide_parts.PARTS]:
                raise ValueError(f"no part is named {', '.join(unknown)}; parts: {', '.join(wide_parts.PARTS)}")
            return names
        case _:
            raise ValueError("give PARTS or SINCE, not both")


def workers(tiers: Sequence[str]) -> int:
    """How many processes run the tests of these tiers. Exits if WORKERS is not a number."""
    given = os.environ.get("WORKERS")
    if given and not given.isdecimal():
        sys.exit(f"tests/tiers.py: WORKERS={given}: a number of processes is expected")
    return int(given) if given else round((os.cpu_count() or 1) * max(WORKERS_PER_CORE[name] for name in tiers))


def names_paths(arguments: Sequence[str]) -> bool:
    """Whether the arguments of pytest name files, folders or tests."""
    return any((ROOT / argument.partition("::")[0]).exists() for argument in arguments if not argument.startswith("-"))


def modules_of(tiers: Sequence[str]) -> list[str]:
    """The modules that may have tests of these tiers, by what they write out: collecting the others takes seconds in each process."""
    return modules_that(lambda text: may_have(text, tiers))


def may_have(text: str, tiers: Sequence[str]) -> bool:
    """Whether a module with this text may have tests of these tiers; `never_runs` refuses tests for which this is wrong."""
    if not {"fast", "medium"} & set(tiers):
        return any(writes(text, tier) for tier in tiers)
    # One with a mark for all its tests has none of a quicker tier.
    whole = re.search(r"^pytestmark = (\[\n.*?^\]|[^\n]*)", text, re.MULTILINE | re.DOTALL)
    marked = set(re.findall(r"\bmark\.(\w+)", whole[1])) if whole else set()
    return not marked & ({"slow", "wide"} if "medium" in tiers else {"medium", "slow", "wide"})


def modules_that(fits: Callable[[str], bool]) -> list[str]:
    """The modules of tests whose text fits: collecting all others takes longer than running some of these."""
    modules = sorted((ROOT / "tests").rglob("test_*.py"))
    return [str(path.relative_to(ROOT)) for path in modules if fits(path.read_text("utf-8"))]


def group_of(test: str) -> str:
    """Return the group of a test, whose modules run in one process; empty if its module is not in a group."""
    return next((group for start, group in GROUPS.items() if test.startswith(start)), "")


def writes(text: str, mark: str) -> bool:
    """Whether a module with this text writes a mark out."""
    return re.search(rf"\bmark\.{mark}\b", text) is not None


def never_runs(marks: Collection[str], module: Path, parts: Collection[str] = ()) -> str:
    """Why no run of `main` would select a test with these marks and parts, and what to do; empty if one does."""
    if "" in parts:
        return 'the mark needs its part, as in wide(part="airflow"); see tests/wide_parts.py'
    if unknown := set(parts) - wide_parts.PARTS.keys():
        return f"no part of the tier wide is named {', '.join(sorted(unknown))}; see tests/wide_parts.py"
    if "acceptance" in marks and (parts or module.parent.name != "acceptance"):
        return "scenes of the acceptance suite are in tests/acceptance, and in no other part of the tier wide"
    if "alone" in marks and not {"medium", "slow"} & set(marks):
        return "alone needs medium or slow beside it; fast tests only run in parallel"
    looked_for = {"alone", "slow", "wide"} & set(marks)
    hidden = sorted(mark for mark in looked_for if not writes(module.read_text("utf-8"), mark))
    return f"write pytest.mark.{hidden[0]} in its module, so that tests/tiers.py finds it" if hidden else ""


def exit_code(codes: Sequence[int]) -> int:
    """One exit code for several runs: the worst, where a run that selected no test counts only if no other did."""
    return max((code for code in codes if code not in (PASSED, NONE_SELECTED)), default=min(codes))


def not_compared(skipped: Sequence[str]) -> str:
    """One line with what skipped tests would have been compared with, empty if there are none."""
    parts = [f"{what} ({count} test{'s' if count > 1 else ''})" for what, count in sorted(collections.Counter(skipped).items())]
    folder = os.environ.get("TRAINWRIGHT_SHARED") or "../shared"
    lacks = "is missing" if not (ROOT / folder).is_dir() else "does not have them"
    how = f"because {folder} {lacks}; set TRAINWRIGHT_SHARED to a folder that has them"
    return f"Not compared with {', '.join(parts)}, {how}.\n" if parts else ""


def _pytest(*arguments: str) -> Run:
    file = ROOT / "build" / f"tests-{os.getpid()}.json"
    file.unlink(missing_ok=True)
    process = subprocess.Popen([sys.executable, "-m", "pytest", *arguments], cwd=ROOT, env={**os.environ, REPORT: str(file)})
    code = _wait(process)
    try:
        found = json.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        if code in AT_THE_END:
            print("tests/tiers.py: pytest has ended before its end: a test may have ended its process", file=sys.stderr)
        return Run(INTERRUPTED if code in AT_THE_END else code)
    file.unlink()
    interrupted = found.pop("interrupted") and code in AT_THE_END
    return Run(INTERRUPTED if interrupted else code, **found)


def _wait(process: subprocess.Popen[bytes]) -> int:
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:  # pytest got it too: it stops its tests and reports what it has
            continue


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
