"""Outcomes of scenes: exit codes, words that a person sees, objects on the API server, files in the claim."""

from __future__ import annotations

import re

from support.waiting import eventually

from acceptance.scene import Check
from acceptance.stage import Stage
from acceptance.told import Told


def ends(code: int) -> Check:
    """The command ends with this exit code."""

    def check(_stage: Stage, told: Told) -> None:
        assert told.code == code, f"exit code {told.code} instead of {code}"

    return check


def says(*patterns: str) -> Check:
    """Every regular expression is found in what the person sees, case ignored."""

    def check(stage: Stage, told: Told) -> None:
        missing = [pattern for pattern in patterns if not re.search(stage.text(pattern), told.text, re.IGNORECASE | re.MULTILINE)]
        assert not missing, f"not said: {', '.join(missing)}"

    return check


def within(seconds: float) -> Check:
    """The command takes no longer."""

    def check(_stage: Stage, told: Told) -> None:
        assert told.seconds <= seconds, f"took {told.seconds:.0f} s, more than {seconds:.0f}"

    return check


def job_is(condition: str, *, jobs: int = 1) -> Check:
    """The run has so many TrainJobs, and all have this condition."""

    def check(stage: Stage, _told: Told) -> None:
        found = stage.jobs()
        assert len(found) == jobs, f"{len(found)} TrainJobs instead of {jobs}"
        for job in found:
            conditions = {entry["type"]: entry["status"] for entry in job.get("status", {}).get("conditions") or []}
            assert conditions.get(condition) == "True", f"{job['metadata']['name']} is not {condition}: {conditions}"

    return check


def file_has(path: str, pattern: str = "") -> Check:
    """A file below the claim exists, with something that the regular expression finds."""

    def check(stage: Stage, _told: Told) -> None:
        text = stage.read(stage.text(path))
        assert re.search(pattern, text), f"{path} is {text[:500]!r}"

    return check


def no_pods() -> Check:
    """None of the run's pods is left running, at the latest after their grace."""

    def check(stage: Stage, _told: Told) -> None:
        eventually(lambda: not stage.running_pods(), 60, f"no running pods of {stage.name}")

    return check
