"""Runs a script of checks in an environment of its own, once for all of its tests, and hands each test its outcome."""

from __future__ import annotations

import ast
import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

CHECKS = Path(__file__).with_name("checks")
SCRIPT_SECONDS = 240


@dataclass(frozen=True)
class Run:
    """What a script printed: outcome and text of each check."""

    outcomes: dict[str, tuple[str, str]]
    rest: str
    """The last words of the script, for a check that it did not come to."""


def checks_of(script: str) -> list[str]:
    """The checks that a script defines, in order, without importing it."""
    tree = ast.parse((CHECKS / f"{script}.py").read_text("utf-8"))
    functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    return [name.removeprefix("check_") for name in functions if name.startswith("check_")]


def run_script(python: Path, script: str, kubeconfig: Path, *, variables: dict[str, str]) -> Run:
    """Run all checks of a script. It ends with us: what it did until the limit counts."""
    command = [str(python), str(CHECKS / f"{script}.py"), "--kubeconfig", str(kubeconfig)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SCRIPT_SECONDS, env=variables)
        printed, words = done.stdout, done.stderr
    except subprocess.TimeoutExpired as late:
        printed = (late.stdout or b"").decode("utf-8", "replace") if isinstance(late.stdout, bytes) else late.stdout or ""
        words = f"the script was not done after {SCRIPT_SECONDS} s"
    outcomes = {}
    for line in printed.splitlines():
        if line.startswith('{"check"'):
            entry = json.loads(line)
            outcomes[entry["check"]] = (entry["outcome"], entry["text"])
    return Run(outcomes, words[-3000:])


def settle(run: Run, check: str, listed: dict[str, str]) -> None:
    """Fail, skip or pass as the check did; `listed` are the differences that are known, with their reasons."""
    outcome, text = run.outcomes.get(check, ("failed", f"the script did not come to this check:\n{run.rest}"))
    if outcome == "left out":
        pytest.skip(text)
    if outcome == "failed" and check in listed:
        pytest.xfail(listed[check])
    assert outcome == "same", text
    assert check not in listed, f"{check} is listed as a difference and is none any more: take it off the list"
