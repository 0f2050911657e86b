"""A whole run: to its end, cancelled by a signal and resumed, past its deadline."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from factories import train_request
from support.running_plane import running_plane
from support.sigterm_scripts import WAIT, wait_until
from support.waiting import eventually
from support.without_environments import home_without_environments

from trainwright.api.kinds import JOBSET, POD, TRAINJOB
from trainwright.embedded.home import Home
from trainwright.embedded.plane import ControlPlane
from trainwright.jobs import Identity, Submission, Waiting
from trainwright.jobs.state.pods import pods_of
from trainwright.jobs.wait.run_step import run_to_end

pytestmark = pytest.mark.medium
STEP = Identity("kfp", "run", "train")
PROGRAM = """
import sys
from trainwright.cluster import connect
from trainwright.jobs import Identity, Submission, TrainRequest, Waiting
from trainwright.jobs.diagnosis.errors import Cancelled
from trainwright.jobs.wait.run_step import run_to_end

request = TrainRequest.parse({"runtime": "torch-distributed", "command": ["bash", "-c", sys.argv[2]]})
try:
    run_to_end(Submission(connect(sys.argv[1]), request, Identity("kfp", "run", "train"), "default"), Waiting())
except Cancelled as cancelled:
    sys.exit(f"CANCELLED {cancelled}")
"""


@pytest.fixture(scope="module")
def shared_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    folder = tmp_path_factory.mktemp("plane")
    home_without_environments(Home(folder / "home"))
    with running_plane(folder) as control_plane:
        yield control_plane


@pytest.fixture
def plane(shared_plane: ControlPlane) -> Iterator[ControlPlane]:
    yield shared_plane
    for job in shared_plane.cluster.list(TRAINJOB).items:
        shared_plane.cluster.delete(TRAINJOB, job["metadata"]["name"], "default")
    for kind in (TRAINJOB, JOBSET, POD):
        eventually(lambda kind=kind: not shared_plane.cluster.list(kind).items, what=kind.plural)


def test_a_sigterm_suspends_and_the_same_step_again_resumes(
    plane: ControlPlane, shared_plane: ControlPlane, tmp_path: Path
) -> None:
    kubeconfig = str(shared_plane._home.kubeconfig)
    started, go = tmp_path / "started", tmp_path / "go"
    script = f"touch {started}; {wait_until(go)}"
    command = [sys.executable, "-c", PROGRAM, kubeconfig, script]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    eventually(started.exists)
    process.send_signal(signal.SIGTERM)
    _, words = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "CANCELLED" in words
    assert "is suspended, and resumes when it is submitted again" in words
    (job,) = plane.cluster.list(TRAINJOB).items
    assert job["spec"]["suspend"] is True
    eventually(lambda: not pods_of(plane.cluster, job))
    go.touch()
    again = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=os.environ)
    assert again.returncode == 0, again.stderr
    (after,) = plane.cluster.list(TRAINJOB).items
    assert after["metadata"]["uid"] == job["metadata"]["uid"]


def test_an_error_of_the_caller_suspends_too(plane: ControlPlane) -> None:
    def boom(_progress: object) -> None:
        raise RuntimeError("boom")

    request = train_request(runtime="torch-distributed", command=["bash", "-c", WAIT])
    with pytest.raises(RuntimeError, match="boom"):
        run_to_end(Submission(plane.cluster, request, STEP, "default"), Waiting(observers=(boom,)))
    assert plane.cluster.list(TRAINJOB).items[0]["spec"]["suspend"] is True
