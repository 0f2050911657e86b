"""The client under an API that fails: whatever the API does, a step makes one job, and hears how it ended; as TrainJob and as JobSet.

A failing seed is printed; run it alone with TRAINWRIGHT_FAULT_SEED.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cluster_without_retries import Faulted, jobs_of
from factories import train_request
from servers.faulty_api import FAULTS, FaultyApi
from support.rounds import IS_LONG
from support.waiting import eventually

from trainwright.api import names
from trainwright.api.kinds import CONFIG_MAP, JOBSET, POD, SECRET, TRAINJOB
from trainwright.api.objects import name_of, owners_of, uid_of
from trainwright.cluster import Cluster, kubernetes_cluster
from trainwright.jobs import Deadlines, Identity, Submission, TrainJobDeleted, delete_job, submit_or_adopt, wait_for
from trainwright.jobs.diagnosis.errors import StepFailed
from trainwright.jobs.logs.follow_logs import follow_logs
from trainwright.jobs.wait.job_observer import WaitSettings
from trainwright.submission import connect_for_jobs
from trainwright.submission.jobset_mode import JobSetCluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
ALONE = "TRAINWRIGHT_FAULT_SEED"
SCHEDULES = [8, pytest.param(1000 if IS_LONG else 40, marks=pytest.mark.wide(part="faults"))]
SECONDS = 60
NO_LONGER = Deadlines(queue=SECONDS, start=SECONDS, run=SECONDS)
SHORT_CONNECTIONS = WaitSettings(connection_seconds=2)
AT_ONCE = 4
SCRIPTS = {
    "success": "for i in 1 2 3 4 5; do echo line $i; sleep 0.1; done",
    "failure": "for i in 1 2 3 4 5; do echo line $i; sleep 0.1; done; exit 7",
    "deletion": "echo line 1; sleep 600",
}


@pytest.fixture(autouse=True)
def _short_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a watch that has gone silent is given up within the test's time."""
    monkeypatch.setattr(kubernetes_cluster, "SILENCE_SECONDS", 1)


@pytest.mark.parametrize("schedules", SCHEDULES)
@pytest.mark.parametrize("jobset_only", [False, True], ids=["trainjob", "jobset"])
def test_every_schedule_of_faults_ends_with_the_right_verdict_and_one_job(
    plane: Faulted, tmp_path: Path, jobset_only: bool, schedules: int
) -> None:
    all_faults = {fault for faults in FAULTS.values() for fault in faults}
    met = _run_all(lambda seed, met: _told(plane, tmp_path, seed, met, jobset_only), schedules)
    # Eight meet most of the faults, and which ones depends on how busy the machine is.
    assert os.environ.get(ALONE) or met == all_faults or schedules == SCHEDULES[0]
    eventually(lambda: not _ours(), what="the client's threads have ended")


@pytest.mark.parametrize("schedules", SCHEDULES)
def test_a_job_with_companions_is_whole_under_every_schedule_of_faults(plane: Faulted, tmp_path: Path, schedules: int) -> None:
    _run_all(lambda seed, met: _submitted(plane, tmp_path, seed, met), schedules // 2)


def _run_all(told: Callable[[int, set[str]], str], schedules: int) -> set[str]:
    """Run so many schedules; returns the faults that were met."""
    alone = os.environ.get(ALONE)
    seeds = [int(alone)] if alone else list(range(schedules))
    met: set[str] = set()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        wrong = {seed: words for seed, words in zip(seeds, pool.map(lambda seed: told(seed, met), seeds), strict=True) if words}
    for seed, words in wrong.items():
        print(f"{ALONE}={seed}: {words}")
    assert not wrong
    return met


def _submitted(plane: Faulted, folder: Path, seed: int, met: set[str]) -> str:
    """What was wrong with an MPI job that was submitted under this schedule; empty for nothing."""
    step = plane.step(f"companions-{seed}")
    with FaultyApi(folder, plane.kubeconfig, seed, jobset_only=True) as api:
        try:
            request = train_request(runtime="deepspeed-distributed", command=["sleep", "600"], num_nodes=2)
            job = submit_or_adopt(Submission(connect_for_jobs(api.kubeconfig), request, step, "default")).trainjob
            assert [uid_of(there) for there in jobs_of(plane, step, jobset_only=True)] == [uid_of(job)]
            assert job["spec"]["suspend"] is False
            for kind, suffix in ((SECRET, "ssh-auth"), (CONFIG_MAP, "hostfile")):
                companion = plane.cluster.get(kind, f"{name_of(job)}-mpi-{suffix}", "default")
                assert [owner["uid"] for owner in owners_of(companion)] == [uid_of(job)]
        except Exception as error:  # every schedule is run, and told of with its seed
            return f"{type(error).__name__}: {error}; it met {api.met}"
        finally:
            met.update(fault.rpartition(" ")[2] for fault in api.met)
    plane.cluster.delete(JOBSET, name_of(job), "default")
    return ""


def _ours() -> list[str]:
    """The threads that the client has made: those that follow a job, and those that read a log."""
    return [thread.name for thread in threading.enumerate() if thread.name == "reflector-trainjobs" or "(_read)" in thread.name]


def _told(plane: Faulted, folder: Path, seed: int, met: set[str], jobset_only: bool) -> str:
    """What was wrong under this schedule; empty for nothing."""
    outcome = random.Random(f"{seed}/outcome").choice(sorted(SCRIPTS))
    began = time.monotonic()
    with FaultyApi(folder, plane.kubeconfig, seed, jobset_only=jobset_only) as api:
        try:
            _follow(plane, api, outcome, plane.step(f"{'jobset' if jobset_only else 'faults'}-{seed}"))
            took = time.monotonic() - began
            assert took < SECONDS, f"took {took:.0f} s"
        except Exception as error:  # every schedule is run, and told of with its seed
            return f"{outcome}, {time.monotonic() - began:.0f} s: {type(error).__name__}: {error}; it met {api.met}"
        finally:
            met.update(fault.rpartition(" ")[2] for fault in api.met)
    return ""


def _follow(plane: Faulted, api: FaultyApi, outcome: str, step: Identity) -> None:
    cluster = connect_for_jobs(api.kubeconfig)
    own: Cluster = JobSetCluster(plane.cluster) if api.jobset_only else plane.cluster
    request = train_request(runtime="once", command=["bash", "-c", SCRIPTS[outcome]])
    job = submit_or_adopt(Submission(cluster, request, step, "default")).trainjob
    with ThreadPoolExecutor(2) as pool:
        if outcome == "deletion":
            deleted = pool.submit(_deleted_once_it_runs, own, job)
            with pytest.raises(TrainJobDeleted):
                wait_for(cluster, job, replace(SHORT_CONNECTIONS, deadlines=NO_LONGER))
            deleted.result(SECONDS)
            assert not jobs_of(plane, step, jobset_only=api.jobset_only)
            return
        logs = pool.submit(lambda: [line.text for line in follow_logs(cluster, job)])
        if outcome == "success":
            assert uid_of(wait_for(cluster, job, replace(SHORT_CONNECTIONS, deadlines=NO_LONGER))) == uid_of(job)
        else:
            with pytest.raises(StepFailed, match="exited 7"):
                wait_for(cluster, job, replace(SHORT_CONNECTIONS, deadlines=NO_LONGER))
        read = logs.result(SECONDS)
    assert read == [f"line {number}" for number in range(1, 6)], f"the log was read as {read}"
    (there,) = jobs_of(plane, step, jobset_only=api.jobset_only)
    assert uid_of(there) == uid_of(job)
    jobsets = [jobset for jobset in plane.cluster.list(JOBSET, "default").items if name_of(jobset).startswith(name_of(job))]
    assert [name_of(jobset) for jobset in jobsets] == [name_of(job)]
    own.delete(TRAINJOB, name_of(job), "default")


def _deleted_once_it_runs(cluster: Cluster, job: dict[str, Any]) -> None:
    selector = f"{names.JOBSET_NAME_LABEL}={name_of(job)}"
    eventually(lambda: cluster.list(POD, "default", label_selector=selector).items, what="it has pods")
    delete_job(cluster, job)
