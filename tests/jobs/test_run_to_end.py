"""A whole run: to its end, cancelled by a signal and resumed, past its deadline."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from factories import train_request
from support.running_plane import running_plane
from support.sigterm_scripts import WAIT, wait_until
from support.waiting import eventually
from support.without_environments import home_without_environments

from trainwright.api.kinds import CLUSTER_TRAINING_RUNTIME, JOBSET, POD, TRAINJOB
from trainwright.api.verdict import superseded
from trainwright.controlplane.home import Home
from trainwright.controlplane.plane import ControlPlane
from trainwright.jobs import (
    Deadlines,
    Identity,
    JobEvent,
    LogStreamOptions,
    Submission,
    TrainJobDeadline,
    Waiting,
    submit_or_adopt,
    suspend_job,
)
from trainwright.jobs.diagnosis.pod_failure import pod_failure
from trainwright.jobs.diagnosis.report import report_of
from trainwright.jobs.state.cancel import CancelPolicy, cancel_owned_job
from trainwright.jobs.state.pods import pods_of
from trainwright.jobs.submit.job_lookup import find_job
from trainwright.jobs.wait.job_events import LogOutput, Restarted
from trainwright.jobs.wait.job_observer import WaitSettings
from trainwright.jobs.wait.run_to_end import run_to_end

pytestmark = pytest.mark.medium
STEP = Identity("kfp", "run", "train")
PROGRAM = """
import sys
from trainwright.cluster import connect
from trainwright.jobs import Identity, Submission, TrainRequest, Waiting
from trainwright.jobs.diagnosis.errors import Cancelled
from trainwright.jobs.wait.run_to_end import run_to_end

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


def test_a_deadline_suspends(plane: ControlPlane) -> None:
    request = train_request(runtime="torch-distributed", command=["bash", "-c", WAIT])
    with pytest.raises(TrainJobDeadline, match="for more than") as raised:
        run_to_end(
            Submission(plane.cluster, request, STEP, "default"), Waiting(WaitSettings(deadlines=Deadlines(run=0.2, start=30)))
        )
    assert raised.value.what == "run"
    (job,) = plane.cluster.list(TRAINJOB).items
    assert job["spec"]["suspend"] is True


def test_an_error_of_the_caller_suspends_too(plane: ControlPlane) -> None:
    def boom(_progress: object) -> None:
        raise RuntimeError("boom")

    request = train_request(runtime="torch-distributed", command=["bash", "-c", WAIT])
    with pytest.raises(RuntimeError, match="boom"):
        run_to_end(Submission(plane.cluster, request, STEP, "default"), Waiting(observers=(boom,)))
    assert plane.cluster.list(TRAINJOB).items[0]["spec"]["suspend"] is True


def test_in_another_thread_signals_stay_as_they_are(plane: ControlPlane) -> None:
    request = train_request(runtime="torch-distributed", command=["true"])
    before = signal.getsignal(signal.SIGTERM)
    ended: list[str] = []

    def run() -> None:
        ended.append(run_to_end(Submission(plane.cluster, request, STEP, "default"), Waiting())["metadata"]["name"])

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(60)
    assert ended == [STEP.name()]
    assert signal.getsignal(signal.SIGTERM) is before
    assert (
        run_to_end(Submission(plane.cluster, request, STEP, "default"), Waiting())["metadata"]["name"] == STEP.name()
    )  # adopted as done
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_superseded_job_is_not_resumed_and_the_step_gets_the_next_generation(plane: ControlPlane) -> None:
    request = train_request(runtime="torch-distributed", command=["bash", "-c", WAIT])
    first = submit_or_adopt(Submission(plane.cluster, request, STEP, "default")).trainjob
    assert suspend_job(plane.cluster, first, superseded("its task was cleared"))
    assert suspend_job(plane.cluster, first, superseded("its task was cleared"))  # again changes nothing
    second = submit_or_adopt(Submission(plane.cluster, request, STEP, "default"))
    assert (second.adopted, second.attempt) == (False, 2)
    _, found = find_job(plane.cluster, STEP, "default") or (None, None)
    assert found == plane.cluster.get(TRAINJOB, second.name, "default")
    assert find_job(plane.cluster, Identity("kfp", "run", "other"), "default") is None
    left = plane.cluster.get(TRAINJOB, first["metadata"]["name"], "default")
    assert left["spec"]["suspend"] is True


@pytest.mark.parametrize(("how", "words"), [("suspend", "is suspended"), ("delete", "is deleted")])
def test_a_job_is_left_as_it_was_asked_for(plane: ControlPlane, how: str, words: str) -> None:
    request = train_request(runtime="torch-distributed", command=["bash", "-c", WAIT])
    job = submit_or_adopt(Submission(plane.cluster, request, STEP, "default")).trainjob
    assert words in cancel_owned_job(plane.cluster, job, CancelPolicy(how))
    if how == "delete":
        eventually(lambda: not plane.cluster.list(TRAINJOB).items)
        assert (
            cancel_owned_job(plane.cluster, job, CancelPolicy.delete)
            == cancel_owned_job(plane.cluster, job, CancelPolicy.suspend)
            == "it no longer exists"
        )
    else:
        assert plane.cluster.get(TRAINJOB, job["metadata"]["name"], "default")["spec"]["suspend"] is True


@pytest.mark.parametrize("policy", ["OnFailure", "Never"])
def test_a_restart_is_told_and_both_runs_are_shown(plane: ControlPlane, tmp_path: Path, policy: str) -> None:
    """A container that starts anew in its pod, and a JobSet that starts anew with all of them."""
    runtime = plane.cluster.get(CLUSTER_TRAINING_RUNTIME, "torch-distributed")
    template = runtime["spec"]["template"]["spec"]
    template["failurePolicy"] = {"maxRestarts": 2}
    (job,) = template["replicatedJobs"]
    job["template"]["spec"]["backoffLimit"] = 3 if policy == "OnFailure" else 0
    job["template"]["spec"]["template"]["spec"]["restartPolicy"] = policy
    metadata = {"name": f"restarting-{policy.lower()}", "labels": runtime["metadata"]["labels"]}
    plane.cluster.create({**runtime, "metadata": metadata})
    marker = tmp_path / "tried"
    script = f"if [ -e {marker} ]; then echo second; exit 0; fi; touch {marker}; echo first; sleep 2; exit 3"
    request = train_request(runtime=metadata["name"], command=["bash", "-c", script])
    told: list[JobEvent] = []
    run_to_end(
        Submission(plane.cluster, request, STEP, "default"),
        Waiting(WaitSettings(logs=LogStreamOptions()), observers=(told.extend,)),
    )
    expected = Restarted(1, container=True) if policy == "OnFailure" else Restarted(1, 2)
    assert [one for one in told if isinstance(one, Restarted)] == [expected]
    assert [one.line.text for one in told if isinstance(one, LogOutput)] == ["first", "second"]


def has_begun_anew(pod: dict[str, Any]) -> bool:
    """Whether a container of the pod runs again after a failure."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or []
    return any(status["restartCount"] and "running" in status["state"] for status in statuses)


def test_a_report_shows_the_run_that_failed_also_when_the_container_has_begun_anew(plane: ControlPlane, tmp_path: Path) -> None:
    runtime = plane.cluster.get(CLUSTER_TRAINING_RUNTIME, "torch-distributed")
    job = runtime["spec"]["template"]["spec"]["replicatedJobs"][0]
    job["template"]["spec"]["backoffLimit"] = 3
    job["template"]["spec"]["template"]["spec"]["restartPolicy"] = "OnFailure"
    plane.cluster.create({**runtime, "metadata": {"name": "crashing", "labels": runtime["metadata"]["labels"]}})
    marker = tmp_path / "tried"
    script = f"if [ -e {marker} ]; then {WAIT}; fi; touch {marker}; echo Rendezvous timeout; exit 3"
    request = train_request(runtime="crashing", command=["bash", "-c", script])
    submitted = submit_or_adopt(Submission(plane.cluster, request, STEP, "default")).trainjob
    eventually(lambda: [pod for pod in pods_of(plane.cluster, submitted) if has_begun_anew(pod) and pod_failure(pod) is not None])
    report = report_of(plane.cluster, submitted)
    assert report.cause is not None
    assert (report.cause.exit_code, report.cause.restarts, report.cause.is_previous_run) == (3, 1, True)
    assert report.cause.lines == ("Rendezvous timeout",)
    assert [pattern.name for pattern in report.log_patterns] == ["rendezvous-timeout"]
