"""The library's way to a cluster with the oldest and the newest official Python client, each in an environment of its own.

There, the tests of that way are run again: connecting, reading, writing, watching, logs, errors, and whole steps over HTTPS.
"""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from support.client_environments import ROOT, Unavailable, client_environment

OLDEST, NEWEST = 30, 37
TESTS = [
    "tests/cluster",
    "tests/jobs/test_run_to_end.py::test_a_sigterm_suspends_and_the_same_step_again_resumes",
    "tests/faults/test_client_faults.py::test_every_schedule_of_faults_ends_with_the_right_verdict_and_one_job",
]
# Not about the client, and the slowest of all.
LEFT_OUT = "tests/cluster/test_cluster_connect.py::test_ten_processes_that_ask_at_once_get_one_embedded_control_plane"
FAULTS = "7"
"""Seed of the one schedule of faults."""
SECONDS = 200


@pytest.fixture(params=[OLDEST, NEWEST])  # the oldest is the one that kfp requires
def python(request: pytest.FixtureRequest) -> Path:
    """The Python of an environment with what the library and an embedded cluster need, and that client."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    test_tools = [each for each in extras["dev"] if re.match("pytest|hypothesis", each)]
    requirements = [*project["dependencies"], *extras["embedded"], *test_tools, f"kubernetes=={request.param}.*"]
    try:
        return client_environment(f"library-kubernetes-{request.param}", requirements)
    except Unavailable as error:
        pytest.skip(str(error))


@pytest.mark.wide(part="clients")
@pytest.mark.slow
@pytest.mark.timeout(240)
def test_the_tests_of_the_way_to_a_cluster_pass_with_this_client(python: Path, tmp_path: Path) -> None:
    run = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", "--basetemp", str(tmp_path / "tests"), *TESTS]
    passed_on = {key: os.environ[key] for key in ("PATH", "HOME", "LANG", "TMPDIR") if key in os.environ}
    env = {**passed_on, "PYTHONPATH": str(ROOT), "TRAINWRIGHT_FAULT_SEED": FAULTS}
    itself = ["--ignore", str(Path(__file__).relative_to(ROOT)), "--deselect", LEFT_OUT]
    done = subprocess.run([*run, *itself], capture_output=True, text=True, timeout=SECONDS, check=False, cwd=ROOT, env=env)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    passed = re.search(r"^(\d+) passed", done.stdout, re.MULTILINE)
    assert passed is not None
    assert int(passed[1]) > 150, "the tests were not found"


def test_the_oldest_and_the_newest_are_the_ends_of_what_is_allowed() -> None:
    dependencies = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]
    assert f"kubernetes>={OLDEST},<{NEWEST + 1}" in dependencies
