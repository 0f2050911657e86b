"""A client killed at every step of a submission, before a request arrives and before its answer does: run again, there is one job."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cluster_without_retries import Faulted, jobs_of
from factories import train_request
from servers.faulty_api import FaultyApi

from trainwright.api.kinds import CONFIG_MAP, JOBSET, SECRET, TRAINJOB
from trainwright.api.objects import owners_of, uid_of
from trainwright.jobs import Submission, submit_or_adopt
from trainwright.submission import connect_for_jobs

pytestmark = pytest.mark.slow
NO_FAULTS = -1
PROGRAM = """
import sys
from trainwright.submission import connect_for_jobs

from trainwright.jobs import Identity, Submission, TrainRequest, submit_or_adopt

request = TrainRequest.parse({"runtime": sys.argv[3], "command": ["sleep", "600"], "num_nodes": 2})
submit_or_adopt(Submission(connect_for_jobs(sys.argv[1]), request, Identity("kfp", sys.argv[2], "train"), "default"))
"""


@pytest.mark.parametrize(
    ("runtime", "jobset_only"),
    [("once", False), ("once", True), ("deepspeed-distributed", True)],
    ids=["trainjob", "jobset", "jobset-with-companions"],
)
def test_a_client_killed_at_any_step_of_a_submission_leaves_one_job_that_the_next_adopts(
    plane: Faulted, tmp_path: Path, runtime: str, jobset_only: bool
) -> None:
    def killed_at(number: int) -> list[tuple[str, str]]:
        run = plane.step(f"{runtime}-{jobset_only}-{number}").run
        return _killed_at(plane, tmp_path, number, run, runtime, jobset_only)

    steps = killed_at(-1)
    assert ("before", "create") in steps
    assert ("after", "create") in steps
    assert len([at for at in steps if at == ("after", "create")]) == (3 if "deepspeed" in runtime else 1)
    for number, at in enumerate(steps):
        step = plane.step(f"{runtime}-{jobset_only}-{number}")
        seen = killed_at(number)
        assert seen[-1] == at
        made = jobs_of(plane, step, jobset_only=jobset_only)
        assert len(made) == (1 if ("after", "create") in seen else 0), at
        with FaultyApi(tmp_path, plane.kubeconfig, NO_FAULTS, jobset_only=jobset_only) as api:
            cluster = connect_for_jobs(api.kubeconfig)
            request = train_request(runtime=runtime, command=["sleep", "600"], num_nodes=2)
            again = submit_or_adopt(Submission(cluster, request, step, "default"))
        assert again.adopted is bool(made), at
        assert again.trainjob["spec"]["suspend"] is False
        assert [uid_of(job) for job in jobs_of(plane, step, jobset_only=jobset_only)] == [uid_of(again.trainjob)], at
        if "deepspeed" in runtime:
            for kind, suffix in ((SECRET, "ssh-auth"), (CONFIG_MAP, "hostfile")):
                companion = plane.cluster.get(kind, f"{again.name}-mpi-{suffix}", "default")
                assert owners_of(companion)[0]["uid"] == uid_of(again.trainjob), at
        plane.cluster.delete(JOBSET if jobset_only else TRAINJOB, again.name, "default")


def _killed_at(plane: Faulted, folder: Path, number: int, run: str, runtime: str, jobset_only: bool) -> list[tuple[str, str]]:
    """Run a submission and kill it at this step, -1 for never; returns the steps that it came to."""
    seen: list[tuple[str, str]] = []
    with FaultyApi(folder, plane.kubeconfig, NO_FAULTS, jobset_only=jobset_only) as api:
        command = [sys.executable, "-c", PROGRAM, str(api.kubeconfig), run, runtime]
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
