"""A client killed at every step of a submission, before a request arrives and before its answer does: run again, there is one job."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from faults_plane import jobs_of
from faulty_api import FaultyApi

from trainwright.api.objects import uid_of
from trainwright.cluster import connect
from trainwright.controlplane.plane import ControlPlane
from trainwright.jobs import Identity, TrainRequest, submit_or_adopt

pytestmark = pytest.mark.slow
NO_FAULTS = -1
PROGRAM = """
import sys
from trainwright.cluster import connect
from trainwright.jobs import Identity, TrainRequest, submit_or_adopt

request = TrainRequest(runtime="once", command=["true"])
submit_or_adopt(connect(sys.argv[1]), request, Identity("kfp", sys.argv[2], "train"), "default")
"""


def test_a_client_killed_at_any_step_of_a_submission_leaves_one_job_that_the_next_adopts(
    plane: ControlPlane,
    tmp_path: Path,
) -> None:
    steps = _killed_at(plane, tmp_path, -1)
    assert ("before", "create") in steps
    assert ("after", "create") in steps
    for number, at in enumerate(steps):
        seen = _killed_at(plane, tmp_path, number)
        assert seen[-1] == at
        made = jobs_of(plane, _step(number))
        assert len(made) == (1 if at == ("after", "create") or ("after", "create") in seen else 0), at
        cluster = connect(plane._home.kubeconfig)
        again = submit_or_adopt(cluster, TrainRequest(runtime="once", command=["true"]), _step(number), "default")
        assert again.adopted is bool(made), at
        assert [uid_of(job) for job in jobs_of(plane, _step(number))] == [uid_of(again.trainjob)], at


def _step(number: int) -> Identity:
    return Identity("kfp", f"killed-{number}", "train")


def _killed_at(plane: ControlPlane, folder: Path, number: int) -> list[tuple[str, str]]:
    """Run a submission and kill it at this step, -1 for never; returns the steps that it came to."""
    seen: list[tuple[str, str]] = []
    with FaultyApi(folder, plane._home.kubeconfig, NO_FAULTS) as api:
        command = [sys.executable, "-c", PROGRAM, str(api.kubeconfig), _step(number).run]
        process: subprocess.Popen[bytes]

        def held(when: str, kind: str) -> None:
            seen.append((when, kind))
            if len(seen) == number + 1:
                process.send_signal(signal.SIGKILL)
                process.wait(30)
                raise ConnectionAbortedError("its client is gone")

        api.held = held
        process = subprocess.Popen(command)
        assert process.wait(60) == (0 if number < 0 else -signal.SIGKILL)
    return seen
