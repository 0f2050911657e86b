"""Whole lives of jobs on a cluster that has JobSet and nothing of Trainer; and beside them, the same lives of TrainJobs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from factories import train_request, trainjob
from support.jobset_only_cluster import JobSetOnly, jobset_only, plane_of_jobsets, runtime_once_in_catalogue  # noqa: F401  a fixture
from support.on_first_use import OnFirstUse
from support.sigterm_scripts import WAIT, wait_until
from support.waiting import eventually
from typer.testing import CliRunner

from trainwright.api.errors import Invalid, NotFound
from trainwright.api.kinds import CLAIM, EVENT, JOB, JOBSET, LEASE, TRAINJOB, Kind
from trainwright.api.objects import name_of, owners_of, uid_of
from trainwright.cli import app
from trainwright.cluster import connect
from trainwright.cluster.refusals import permission_for
from trainwright.controlplane.controllers.local_queue import queues_map
from trainwright.embedded.plane import ControlPlane
from trainwright.jobs import (
    Deadlines,
    Identity,
    Phase,
    StepFailed,
    Submission,
    TrainRequest,
    Waiting,
    phase_of,
    submit_or_adopt,
    wait_for,
)
from trainwright.jobs.diagnosis.report import report_of
from trainwright.jobs.logs.follow_logs import follow_logs
from trainwright.jobs.state.cancel import CancelPolicy, cancel_owned_job
from trainwright.jobs.state.deadline_timer import RUN_TIMEOUT_SECONDS
from trainwright.jobs.state.describe import description_of
from trainwright.jobs.state.pods import check_own_pods, pods_of
from trainwright.jobs.state.watched_pods import WatchedPods
from trainwright.jobs.submit import cluster_fit
from trainwright.jobs.submit.job_lookup import find_job, jobs_of_run
from trainwright.jobs.submit.rbac import BESIDE_TRAINER_CALLS, JOBSET_MODE_CALLS, LOCAL_QUEUE, WORKLOAD
from trainwright.jobs.wait.job_observer import WaitSettings
from trainwright.jobs.wait.run_step import run_to_end
from trainwright.submission import connect_for_jobs
from trainwright.submission.jobs_client import VARIABLE, JobsClient, Mode

dynamic = OnFirstUse("kubernetes.dynamic")

pytestmark = [pytest.mark.medium, pytest.mark.timeout(240)]
NO_LONGER = Deadlines(queue=60, start=60, run=60)
TRAINING = """
import os, sys, time
for step in range(3):
    print(f"step {step} of rank {os.environ['PET_NODE_RANK']}", flush=True)
    time.sleep(0.1)
sys.exit(int(sys.argv[1]))
"""


def training(code: int = 0, **fields: Any) -> TrainRequest:
    """A small training program on two nodes."""
    return train_request(**{"runtime": "once", "command": ["python3", "-c", TRAINING, str(code)], "num_nodes": 2, **fields})


def sleeping(flag: Path) -> TrainRequest:
    """Trains until the flag is there."""
    return train_request(runtime="once", command=["bash", "-c", f"{wait_until(flag)}; echo done"])


@pytest.fixture
def cluster(jobset_only: JobSetOnly) -> JobsClient:  # noqa: F811
    cluster = connect_for_jobs(jobset_only.way)
    assert cluster.mode is Mode.jobset
    return cluster


def step(name: str) -> Identity:
    return Identity("kfp", name, "train")


def test_the_command_line_sees_such_jobs(
    cluster: JobsClient,
    jobset_only: JobSetOnly,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(jobset_only.way))
    monkeypatch.delenv("TRAINWRIGHT_HOME")

    def run(*arguments: str, code: int = 0) -> str:
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == code, result.output
        return result.output

    manifest = trainjob("by-hand", runtime="once", script="echo hello")
    (tmp_path / "job.yaml").write_text(json.dumps(manifest))
    assert "by-hand created" in run("submit", "-f", str(tmp_path / "job.yaml"))
    assert "Succeeded" in run("wait", "by-hand", "--timeout", "60")
    assert "by-hand" in run("get")
    assert json.loads(run("get", "by-hand", "-o", "json"))["kind"] == "TrainJob"
    assert "hello" in run("logs", "by-hand")
    assert "Complete=True" in run("describe", "by-hand")
    assert "already ended" in run("cancel", "by-hand", code=1)
    assert "by-hand deleted" in run("delete", "by-hand")
    assert "serves no trainjobs" in run("get", "--submission-mode", "trainjob", code=3)
    told = json.loads(run("doctor", "--runtime", "once", "-o", "json"))
    by_check = {each["check"]: each for each in told["findings"]}
    assert [each["check"] for each in told["findings"] if each["level"] != "ok"] == ["guard"], (
        "an embedded controller has TrainJobs"
    )
    assert (by_check["mode"]["subject"], "is not served" in by_check["mode"]["message"]) == ("jobset", True)
    assert "controller" not in by_check
    monkeypatch.setenv(VARIABLE, "trainjob")
    told = json.loads(run("doctor", "-o", "json", code=1))
    assert {each["check"]: each["level"] for each in told["findings"]}["mode"] == "missing"


def test_the_table_of_rights_is_what_is_asked(
    jobset_only: JobSetOnly,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(cluster_fit, "_nodes", cluster_fit._Nodes())  # other tests have listed them
    connect(jobset_only.way).create(queues_map("queues: [{name: q, quota: {cpu: 0}}]"))
    made: set[str] = set()
    exchange = dynamic.DynamicClient.request

    def recorded(client: dynamic.DynamicClient, method: str, path: str, **more: Any) -> Any:
        if (right := permission_for(method, path, more.get("query_params") or [])) is not None:
            made.add(str(right))
        return exchange(client, method, path, **more)

    monkeypatch.setattr(dynamic.DynamicClient, "request", recorded)
    cluster = connect_for_jobs(jobset_only.way)
    with pytest.raises(StepFailed):
        run_to_end(
            Submission(cluster, training(3), step("rights-failure"), "default"), Waiting(WaitSettings(deadlines=NO_LONGER))
        )
    job = submit_or_adopt(Submission(cluster, sleeping(tmp_path / "never"), step("rights"), "default")).trainjob
    eventually(lambda: any((pod.get("status") or {}).get("phase") == "Running" for pod in pods_of(cluster, job)))
    deferred = WatchedPods().open("connection", cluster, "default", name_of(job))
    eventually(lambda: "watch pods in the namespace default" in made)
    deferred.close()
    (tmp_path / "never").touch()
    assert "done" in [line.text for line in follow_logs(cluster, job)]
    request = train_request(runtime="deepspeed-distributed", command=["bash", "-c", WAIT], num_nodes=2)
    for how in (CancelPolicy.suspend, CancelPolicy.delete):
        made_of_mpi = submit_or_adopt(Submission(cluster, request, step("rights-mpi"), "default")).trainjob
        cancel_owned_job(cluster, made_of_mpi, how, timeout_seconds=5)
    new = "pvc://rights?size=1Gi&class=fast&retain=delete"
    request = train_request(runtime="trl-sft", workspace=new, queue_name="q", dataset_uri="hf://a/b", model_uri="hf://a/b")
    with_volume = submit_or_adopt(Submission(cluster, request, step("rights-volume"), "default")).trainjob
    claim = cluster.get(CLAIM, "rights", "default")
    assert [(owner["kind"], owner["uid"]) for owner in owners_of(claim)] == [("JobSet", uid_of(with_volume))]
    cancel_owned_job(cluster, with_volume, CancelPolicy.delete, timeout_seconds=30)
    eventually(lambda: is_gone(cluster, CLAIM, "rights"))
    (tmp_path / "code").mkdir()
    (tmp_path / "code/train.py").write_text("print('hello')\n")
    request = train_request(code=str(tmp_path / "code"), command=["train.py"])
    with_code = submit_or_adopt(Submission(cluster, request, step("rights-code"), "default")).trainjob
    cancel_owned_job(cluster, with_code, CancelPolicy.delete, timeout_seconds=1)
    table = {str(call.permission("default")) for call in JOBSET_MODE_CALLS}
    elsewhere = [call for call in JOBSET_MODE_CALLS if call.kind in (JOB, WORKLOAD, LOCAL_QUEUE, LEASE)]
    elsewhere += [call for call in JOBSET_MODE_CALLS if (call.kind, call.verb) == (EVENT, "create")]
    unasked = {str(call.permission("default")) for call in (*elsewhere, *BESIDE_TRAINER_CALLS)}
    assert made - {"get configmaps in the namespace kubeflow-system"} <= table, "an embedded cluster has its queues there"
    assert table - made <= unasked, "asked for only on clusters with Kueue or Trainer, or only in some failures"


def is_gone(cluster: JobsClient, kind: Kind, name: str) -> bool:
    try:
        cluster.get(kind, name, "default")
    except NotFound:
        return True
    return False


# The same in both modes: a cluster with Trainer's API and a controller, where each request is made in either.


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    folder = tmp_path_factory.mktemp("both")
    with runtime_once_in_catalogue(folder), plane_of_jobsets(folder, trainjobs=True) as plane:
        yield plane


def in_mode(plane: ControlPlane, mode: str) -> JobsClient:
    cluster = connect_for_jobs(plane._home.kubeconfig, mode=mode)
    assert (cluster.mode is Mode.jobset) is (mode == "jobset")
    return cluster


def succeeds(cluster: JobsClient, identity: Identity, _flag: Path) -> Any:
    return run_to_end(Submission(cluster, training(), identity, "default"), Waiting(WaitSettings(deadlines=NO_LONGER)))


def fails(cluster: JobsClient, identity: Identity, _flag: Path) -> Any:
    with pytest.raises(StepFailed) as failed:
        run_to_end(Submission(cluster, training(7, num_nodes=1), identity, "default"), Waiting(WaitSettings(deadlines=NO_LONGER)))
    return failed.value.trainjob


def is_suspended_and_resumed(cluster: JobsClient, identity: Identity, flag: Path) -> Any:
    job = submit_or_adopt(Submission(cluster, sleeping(flag), identity, "default")).trainjob
    eventually(lambda: phase_of(cluster.get(TRAINJOB, name_of(job), "default")) is Phase.Running)
    cancel_owned_job(cluster, job, CancelPolicy.suspend, timeout_seconds=30)
    flag.touch()
    return run_to_end(Submission(cluster, sleeping(flag), identity, "default"), Waiting(WaitSettings(deadlines=NO_LONGER)))


def as_told(cluster: JobsClient, job: Any) -> dict[str, Any]:
    """What a client hears of a job, without what differs from job to job."""

    def plain(text: str) -> str:
        text = re.sub(rf"{re.escape(name_of(job))}(-node-\d-\d-)[a-z0-9]{{5}}", r"JOB\1POD", text)
        text = re.sub(r"\nused: \d+\.\d+ node-hours", "", text)  # nothing, for less than a second
        return text.replace(name_of(job), "JOB")

    final = cluster.get(TRAINJOB, name_of(job), "default")
    conditions = [
        {**entry, "message": plain(entry["message"]), "lastTransitionTime": bool(entry["lastTransitionTime"])}
        for entry in final["status"]["conditions"]
    ]
    return {
        "phase": phase_of(final),
        "spec": final["spec"],
        "conditions": conditions,
        "counters": final["status"]["jobsStatus"],
        "labels": sorted(final["metadata"]["labels"]),
        "annotations": sorted(final["metadata"]["annotations"]),
        "report": plain(str(report_of(cluster, final))),
    }


@pytest.mark.parametrize("life", [succeeds, fails, is_suspended_and_resumed])
def test_both_modes_tell_the_same(both: ControlPlane, tmp_path: Path, life: Callable[..., Any]) -> None:
    told = {}
    for mode in ("trainjob", "jobset"):
        cluster = in_mode(both, mode)
        job = life(cluster, step(f"{life.__name__}-{mode}"), tmp_path / mode)
        told[mode] = as_told(cluster, job)
        told[mode]["spec"]["trainer"]["command"] = [
            word.replace(str(tmp_path / mode), "FLAG") for word in told[mode]["spec"]["trainer"]["command"]
        ]
    assert told["trainjob"]["spec"].pop("activeDeadlineSeconds") == RUN_TIMEOUT_SECONDS, "of which JobSets have none"
    assert told["jobset"] == told["trainjob"]


def test_a_step_stays_in_the_mode_in_which_it_was_submitted(both: ControlPlane, tmp_path: Path) -> None:
    """Trainer was installed while the job trained: the same step, submitted as auto chooses now, finds its job."""
    request = sleeping(tmp_path / "go")
    before = submit_or_adopt(Submission(in_mode(both, "jobset"), request, step("stays"), "default"))
    auto = connect_for_jobs(both._home.kubeconfig)
    assert auto.mode is Mode.trainjob
    again = submit_or_adopt(Submission(auto, request, step("stays"), "default"))
    assert (again.adopted, again.cluster.mode, uid_of(again.trainjob)) == (True, Mode.jobset, uid_of(before.trainjob))
    found = [find_job(auto, step("stays"), "default"), *jobs_of_run(auto, "stays", "default")]
    assert [(uid_of(job), place.mode) for place, job in filter(None, found)] == [(uid_of(before.trainjob), Mode.jobset)] * 2
    (tmp_path / "go").touch()
    wait_for(again.cluster, again.trainjob, WaitSettings(deadlines=NO_LONGER))


def test_a_submission_costs_three_requests_also_where_there_could_be_another_mode(
    both: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    both.cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "without"}})
    made: list[str] = []
    exchange = dynamic.DynamicClient.request

    def counted(client: dynamic.DynamicClient, method: str, path: str, **more: Any) -> Any:
        made.append(f"{method} {path}")
        return exchange(client, method, path, **more)

    auto = connect_for_jobs(both._home.kubeconfig)
    monkeypatch.setattr(dynamic.DynamicClient, "request", counted)
    counts = []
    for number in range(2):
        made.clear()
        submit_or_adopt(Submission(auto, training(num_nodes=1), step(f"three-{number}"), "without"))
        counts.append(len(made))
    assert counts[1] == 3, made
    assert 3 < counts[0] <= 6  # less where this process has asked the cluster what it serves before


def test_after_a_failure_the_next_generation_goes_where_auto_says(both: ControlPlane) -> None:
    with pytest.raises(StepFailed):
        run_to_end(
            Submission(in_mode(both, "jobset"), training(7, num_nodes=1), step("moves"), "default"),
            Waiting(WaitSettings(deadlines=NO_LONGER)),
        )
    auto = connect_for_jobs(both._home.kubeconfig)
    again = submit_or_adopt(Submission(auto, training(7, num_nodes=1), step("moves"), "default"))
    assert (again.adopted, again.attempt, again.cluster.mode) == (False, 2, Mode.trainjob)
    assert both.cluster.get(TRAINJOB, again.name, "default")["metadata"]["uid"] == uid_of(again.trainjob)


def test_the_jobset_of_a_trainjob_is_not_taken(both: ControlPlane, tmp_path: Path) -> None:
    job = submit_or_adopt(Submission(in_mode(both, "trainjob"), sleeping(tmp_path / "never"), step("theirs"), "default")).trainjob
    eventually(lambda: both.cluster.list(JOBSET, "default", field_selector=f"metadata.name={name_of(job)}").items)
    with pytest.raises(Invalid, match="was not created in jobset mode"):
        submit_or_adopt(Submission(in_mode(both, "jobset"), sleeping(tmp_path / "never"), step("theirs"), "default"))
    cancel_owned_job(in_mode(both, "trainjob"), job, CancelPolicy.delete, timeout_seconds=30)


def test_name_of_a_jobset_mode_job_is_refused_in_trainjob_mode(both: ControlPlane, tmp_path: Path) -> None:
    request, identity = sleeping(tmp_path / "never"), step("other-mode")
    job = submit_or_adopt(Submission(in_mode(both, "jobset"), request, identity, "default")).trainjob
    with pytest.raises(Invalid, match=f"the JobSet default/{name_of(job)} exists and was submitted in jobset mode"):
        submit_or_adopt(Submission(in_mode(both, "trainjob"), request, identity, "default"))
    both.cluster.create(trainjob(name_of(job)))  # as kubectl does
    taken = both.cluster.get(TRAINJOB, name_of(job), "default")
    text = description_of(both.cluster, taken)
    assert "none: the JobSet of its name belongs to another job" in text
    assert f"{name_of(job)}-node-0-0" not in text.partition("Events:")[0]
    with pytest.raises(NotFound, match="belongs to another job"):
        check_own_pods(both.cluster, taken)
    check_own_pods(in_mode(both, "jobset"), job)
    both.cluster.delete(TRAINJOB, name_of(job), "default")
    cancel_owned_job(in_mode(both, "jobset"), job, CancelPolicy.delete, timeout_seconds=30)
