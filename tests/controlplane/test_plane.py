"""TrainJobs on the embedded cluster, from end to end, with processes that are shell commands."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from factories import trainjob
from support.pod_isolation import pods_are_isolated
from support.running_plane import create_runtime_once
from support.waiting import eventually

from trainwright.api.conditions import condition, is_true
from trainwright.api.errors import NotFound
from trainwright.api.kinds import CLAIM, CLUSTER_TRAINING_RUNTIME, JOB, JOBSET, NODE, POD, TRAINJOB
from trainwright.api.objects import name_of, uid_of
from trainwright.api.quantities import parse_quantity
from trainwright.embedded.plane import ControlPlane
from trainwright.jobs import Deadlines, TrainJobDeadline, TrainJobFailed, delete_job, suspend_job, wait_for
from trainwright.jobs.logs.log_options import LogSelector
from trainwright.jobs.logs.read_logs import read_logs
from trainwright.jobs.state.pods import pods_of
from trainwright.jobs.wait.job_observer import WaitSettings

pytestmark = pytest.mark.medium


def alive(marker: str) -> list[int]:
    """Processes that carry a marker in their environment."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if marker.encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return [pid for pid in found if pid != os.getpid()]


def test_two_nodes_see_each_other_and_succeed(plane: ControlPlane) -> None:
    job = plane.cluster.create(
        trainjob(script='echo "rank $PET_NODE_RANK of $PET_NNODES at $PET_MASTER_ADDR:$PET_MASTER_PORT"', nodes=2)
    )
    done = wait_for(plane.cluster, job)
    assert (condition(done, "Complete") or {})["reason"] == "AllJobsCompleted"
    assert done["status"]["jobsStatus"] == [
        {"name": "node", "ready": 0, "succeeded": 1, "failed": 0, "active": 0, "suspended": 0}
    ]
    lines = sorted(line.text for line in read_logs(plane.cluster, job, LogSelector(rank=None)))
    master = "demo-node-0-0.demo" if pods_are_isolated(plane.cluster) else "127.0.0.1"
    assert lines[0].startswith(f"rank 0 of 2 at {master}:")
    assert lines[1].startswith(f"rank 1 of 2 at {master}:")
    ports = {line.rpartition(":")[2] for line in lines}
    assert len(ports) == 1
    assert ports != {"29500"}


def test_a_node_that_fails_fails_the_run_with_pod_code_and_log(plane: ControlPlane) -> None:
    script = (
        "if [ $PET_NODE_RANK = 1 ]; then for i in $(seq 30); do echo line $i; done; echo boom ünïcode >&2; exit 7; fi; "
        "trap 'exit 143' TERM; sleep 1000 & wait"
    )
    job = plane.cluster.create(trainjob(script=script, nodes=2, runtimeRef={"name": create_runtime_once(plane.cluster)}))
    with pytest.raises(TrainJobFailed) as failed:
        wait_for(plane.cluster, job)
    text = str(failed.value)
    assert "FailedJobs" in text
    assert "demo-node-0-1-" in text
    assert "exited 7" in text
    assert "boom ünïcode" in text
    assert "line 30" in text
    assert "line 11\n" not in text  # twenty lines, not all
    eventually(lambda: not alive(f"JOB_COMPLETION_INDEX=0\0TRAINWRIGHT_POD_UID={uid_of(job)}"), what="nothing stays running")
    assert not [pod for pod in pods_of(plane.cluster, job) if (pod.get("status") or {}).get("phase") == "Running"]


def test_a_container_is_restarted_in_its_pod(plane: ControlPlane, tmp_path: Path) -> None:
    marker = tmp_path / "tried"
    job = plane.cluster.create(trainjob(script=f"[ -e {marker} ] && exit 0; touch {marker}; exit 3"))
    wait_for(plane.cluster, job)
    (pod,) = pods_of(plane.cluster, job)
    (container,) = pod["status"]["containerStatuses"]
    assert container["restartCount"] == 1
    assert container["lastState"]["terminated"]["exitCode"] == 3


def test_deleting_a_job_ends_its_processes_and_removes_all_it_owned(plane: ControlPlane) -> None:
    job = plane.cluster.create(
        trainjob(script="trap '' TERM; sleep 1000 & wait; sleep 1000", trainer={"env": [{"name": "MARK", "value": "deleteme"}]})
    )
    eventually(lambda: alive("MARK=deleteme"))
    (pod,) = pods_of(plane.cluster, job)
    plane.cluster.delete(POD, name_of(pod), "default", grace_period_seconds=1)  # ends although SIGTERM is ignored
    assert delete_job(plane.cluster, job)
    eventually(lambda: not alive("MARK=deleteme"), 60)
    for kind in (TRAINJOB, JOBSET, JOB, POD):
        eventually(lambda kind=kind: not plane.cluster.list(kind, "default").items, 60, kind.plural)


def test_suspend_ends_the_pods_and_resume_starts_them_again(plane: ControlPlane, tmp_path: Path) -> None:
    go = tmp_path / "go"
    job = plane.cluster.create(trainjob(script=f"trap 'exit 143' TERM; while [ ! -e {go} ]; do sleep 0.05; done"))
    eventually(lambda: [pod for pod in pods_of(plane.cluster, job) if (pod.get("status") or {}).get("phase") == "Running"])
    suspend_job(plane.cluster, job)
    eventually(lambda: not pods_of(plane.cluster, job))
    assert is_true(plane.cluster.get(TRAINJOB, "demo", "default"), "Suspended")
    go.touch()
    plane.cluster.patch(TRAINJOB, "demo", {"spec": {"suspend": False}}, "default")
    done = wait_for(plane.cluster, plane.cluster.get(TRAINJOB, "demo", "default"))
    assert (condition(done, "Suspended") or {})["reason"] == "Resumed"


def test_a_jobset_restarts_within_its_maximum_and_then_fails(plane: ControlPlane, tmp_path: Path) -> None:
    runtime = plane.cluster.get(CLUSTER_TRAINING_RUNTIME, create_runtime_once(plane.cluster))
    runtime["spec"]["template"]["spec"]["failurePolicy"] = {"maxRestarts": 2}
    plane.cluster.create({**runtime, "metadata": {"name": "thrice"}})
    count = tmp_path / "count"
    job = plane.cluster.create(trainjob(script=f"echo x >> {count}; exit 1", runtimeRef={"name": "thrice"}))
    with pytest.raises(TrainJobFailed, match="ReachedMaxRestarts"):
        wait_for(plane.cluster, job)
    assert count.read_text() == "x\n" * 3
    assert plane.cluster.get(JOBSET, "demo", "default")["status"]["restarts"] == 2


def test_a_pod_without_its_claim_stays_pending_and_says_why(plane: ControlPlane) -> None:
    job = trainjob(script="true", runtimeRef={"name": "causal-lm-evaluation"})
    patch = {
        "template": {
            "spec": {"template": {"spec": {"volumes": [{"name": "initializer", "persistentVolumeClaim": {"claimName": "no"}}]}}}
        }
    }
    jobs = [{"name": "node", **patch}]
    job["spec"]["runtimePatches"] = [
        {"manager": "a.b/c", "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}}
    ]
    with pytest.raises(TrainJobDeadline, match='persistentvolumeclaim "no" not found'):
        wait_for(plane.cluster, plane.cluster.create(job), WaitSettings(deadlines=Deadlines(start=2)))


def test_the_node_offers_this_machine_its_disk_too(plane: ControlPlane, tmp_path: Path) -> None:
    eventually(lambda: plane.cluster.list(NODE).items)
    status = plane.cluster.list(NODE).items[0]["status"]
    free = parse_quantity(status["allocatable"]["ephemeral-storage"])
    assert parse_quantity(0) < free <= parse_quantity(status["capacity"]["ephemeral-storage"])
    assert status["allocatable"]["cpu"] == str(os.cpu_count())
    spec = {"resourcesPerNode": {"limits": {"ephemeral-storage": "1Mi"}}}
    assert wait_for(plane.cluster, plane.cluster.create(trainjob(script="true", trainer=spec)))
    spec = {"resourcesPerNode": {"limits": {"ephemeral-storage": "1Ei"}}}
    with pytest.raises(TrainJobDeadline, match="ephemeral-storage"):
        wait_for(
            plane.cluster,
            plane.cluster.create(trainjob("large", script="true", trainer=spec)),
            WaitSettings(deadlines=Deadlines(start=2)),
        )


def test_a_claim_is_a_folder_that_is_found_at_the_path_of_its_mount(plane: ControlPlane, tmp_path: Path) -> None:
    claim = plane.cluster.get(CLAIM, "workspace", "default")
    metadata = {"name": "mine", "namespace": "default", "annotations": {"trainwright.dev/host-path": str(tmp_path / "claim")}}
    plane.cluster.create({**claim, "metadata": metadata})
    job = trainjob(script="echo $WHERE > /workspace/out.txt", runtimeRef={"name": "causal-lm-evaluation"})
    job["spec"]["trainer"]["env"] = [{"name": "WHERE", "value": "file:///workspace/x"}]
    pod_spec = {
        "containers": [
            {"name": "node", "volumeMounts": [{"name": "initializer", "mountPath": "/workspace", "subPathExpr": "a/b"}]}
        ],
        "volumes": [{"name": "initializer", "persistentVolumeClaim": {"claimName": "mine"}}],
    }
    jobs = [{"name": "node", "template": {"spec": {"template": {"spec": pod_spec}}}}]
    job["spec"]["runtimePatches"] = [
        {"manager": "a.b/c", "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}}
    ]
    wait_for(plane.cluster, plane.cluster.create(job))
    seen = Path("/workspace") if pods_are_isolated(plane.cluster) else tmp_path / "claim/a/b"
    assert (tmp_path / "claim/a/b/out.txt").read_text() == f"file://{seen}/x\n"


def test_a_job_past_its_deadline_fails_and_its_jobset_goes(plane: ControlPlane) -> None:
    job = plane.cluster.create(trainjob(script="sleep 1000", activeDeadlineSeconds=1))
    with pytest.raises(TrainJobFailed, match="DeadlineExceeded"):
        wait_for(plane.cluster, job)

    def gone() -> bool:
        try:
            plane.cluster.get(JOBSET, "demo", "default")
        except NotFound:
            return True
        return False

    eventually(gone)


def test_orphans_of_a_container_do_not_outlive_it(plane: ControlPlane) -> None:
    env = [{"name": "MARK", "value": "orphan"}]
    job = plane.cluster.create(trainjob(script="setsid sleep 1000 & sleep 0.2", trainer={"env": env}))
    wait_for(plane.cluster, job)
    eventually(lambda: not alive("MARK=orphan"))


def test_credentials_of_the_node_do_not_reach_a_pod(plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "secret-value")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret-value")
    job = plane.cluster.create(trainjob(script="env"))
    wait_for(plane.cluster, job)
    assert not [line for line in read_logs(plane.cluster, job, LogSelector(rank=None)) if "secret-value" in line.text]


def test_a_successor_does_not_take_over_what_its_predecessor_left(plane: ControlPlane) -> None:
    first = plane.cluster.create(trainjob(script="true"))
    wait_for(plane.cluster, first)
    plane.cluster.delete(TRAINJOB, "demo", "default")
    second = plane.cluster.create(trainjob(script="exit 5", runtimeRef={"name": create_runtime_once(plane.cluster)}))
    with pytest.raises(TrainJobFailed, match="exited 5"):
        wait_for(plane.cluster, second)
