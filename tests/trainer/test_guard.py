"""`trainwright guard` over real HTTP: it ends what nobody waits for within seconds, and nothing else."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from factories import program_request
from support.argo_workflows import (
    complete_workflow,
    create_step_pod,
    create_workflow,
    note_of,
    served_workflows,
)
from support.proxied_controllers import Running
from support.rbac_evaluator import Rbac
from support.running_plane import running_plane
from support.waiting import eventually
from typer.testing import CliRunner

from trainwright.api import names
from trainwright.api.errors import NotFound
from trainwright.api.kinds import EVENT, LEASE, POD, TRAINJOB
from trainwright.api.objects import Obj, name_of
from trainwright.cli import app
from trainwright.cluster import connect
from trainwright.controlplane.controllers.queue import KeyQueue
from trainwright.embedded.home import Home
from trainwright.embedded.options import FeatureGates
from trainwright.embedded.plane import ControlPlane
from trainwright.jobs import Identity, Submission, submit_or_adopt
from trainwright.jobs.state.identity import Submitter
from trainwright.jobs.state.waiters import WORKFLOW, renewal_patch, runs_of
from trainwright.submission.jobs_client import Mode
from trainwright.submission.jobset_mode import JobSetCluster
from trainwright.trainer.standalone import guard
from trainwright.trainer.standalone.guard import GuardOptions

pytestmark = [pytest.mark.medium, pytest.mark.timeout(60)]
SECONDS = 10.0
"""Within which the guard acts."""
LEASE_SECONDS = 600
ALL = GuardOptions()


@pytest.fixture
def others_plane(tmp_path: Path) -> Iterator[ControlPlane]:
    """A cluster whose controllers do nothing, with workflows."""
    with served_workflows(), running_plane(tmp_path, controllers=(), node=False) as plane:
        yield plane


@pytest.fixture
def cluster(others_plane: ControlPlane) -> Any:
    return others_plane.cluster


@contextmanager
def guarding(plane: ControlPlane, options: GuardOptions = ALL) -> Iterator[None]:
    """Run a guard in this process."""
    stop = threading.Event()
    thread = threading.Thread(target=guard.run, args=(connect(plane._home.kubeconfig), options, stop))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(10)
        assert not thread.is_alive()


def submit(view: Any, workflow: Obj, step: str = "train", **settings: Any) -> Obj:
    """The job of a step of a run, whose pod waits."""
    note = note_of(create_step_pod(view, workflow, step=step), workflow)
    identity = Identity("kfp", name_of(workflow), step, submitter=Submitter("run", waiting_pod=note))
    return submit_or_adopt(
        Submission(view, program_request(**settings), identity, "default"), waiter_lease_seconds=LEASE_SECONDS
    ).trainjob


def is_suspended(view: Any, trainjob: Obj) -> bool:
    return bool(view.get(TRAINJOB, name_of(trainjob), "default")["spec"].get("suspend"))


def expire(view: Any, trainjob: Obj) -> None:
    patch = renewal_patch(trainjob, LEASE_SECONDS, datetime.now(UTC) - timedelta(seconds=LEASE_SECONDS + 1))
    view.patch(TRAINJOB, name_of(trainjob), patch, "default")


def settled(view: Any) -> None:
    """Wait until a guard has seen what there is, by the end of a job that comes after it."""
    flow = create_workflow(view, f"probe-{time.monotonic_ns()}")
    probe = submit(view, flow)
    complete_workflow(view, flow)
    eventually(lambda: is_suspended(view, probe), SECONDS, "the guard ends the job of the probe")


def test_guard_acts_with_its_role_until_it_is_told_to_end(
    others_plane: ControlPlane, cluster: Any, start: Callable[..., Running]
) -> None:
    printed = CliRunner().invoke(app, ["rbac", "-n", "default", "--for", "kfp", "--guard", "--mode", "auto"]).stdout
    rbac, account = Rbac(list(yaml.safe_load_all(printed))), "default:trainwright-guard"
    ends, goes_on, deletes = (create_workflow(cluster, name) for name in ("ends", "goes-on", "deletes"))
    left, waited_for, deleted = submit(cluster, ends), submit(cluster, goes_on), submit(cluster, deletes, on_cancel="delete")
    stand_in = submit(JobSetCluster(cluster), create_workflow(cluster, "in-jobset-mode"))
    running = start("--namespace", "default", command=("guard",), rbac=rbac, account=account)
    running.await_line("event=guard_started")
    for workflow in (ends, deletes):
        complete_workflow(cluster, workflow)
    cluster.delete(WORKFLOW, "in-jobset-mode", "default")
    eventually(lambda: is_suspended(cluster, left), SECONDS)
    eventually(lambda: is_suspended(JobSetCluster(cluster), stand_in), SECONDS)
    eventually(lambda: name_of(deleted) not in map(name_of, cluster.list(TRAINJOB, "default").items), SECONDS)
    expire(cluster, waited_for)
    settled(cluster)
    assert not is_suspended(cluster, waited_for), "its pod waits"
    cluster.delete(POD, "goes-on-train-0", "default", grace_period_seconds=0)
    eventually(lambda: is_suspended(cluster, waited_for), SECONDS)
    eventually(lambda: "WaiterGone" in {event["reason"] for event in cluster.list(EVENT, "default").items})
    assert eventually(lambda: cluster.get(LEASE, "trainwright-guard", "default")["spec"]["holderIdentity"])
    began = time.monotonic()
    assert running.end() == 0
    assert time.monotonic() - began < 5
    assert cluster.get(LEASE, "trainwright-guard", "default")["spec"]["holderIdentity"] == ""
    assert running.door.refused == []
    assert "Traceback" not in running.said()


def test_ends_that_a_guard_has_not_seen_are_found_at_its_next_start(others_plane: ControlPlane, cluster: Any) -> None:
    before, during = create_workflow(cluster, "before"), create_workflow(cluster, "during")
    first, second = submit(cluster, before), submit(cluster, during)
    with guarding(others_plane):
        settled(cluster)
    complete_workflow(cluster, before)
    cluster.delete(WORKFLOW, "during", "default")
    third = submit(cluster, create_workflow(cluster, "active"))
    with guarding(others_plane):
        eventually(lambda: is_suspended(cluster, first) and is_suspended(cluster, second), SECONDS)
        settled(cluster)
    assert not is_suspended(cluster, third)


def test_two_guards_end_each_job_once(others_plane: ControlPlane, cluster: Any) -> None:
    flows = [create_workflow(cluster, f"flow-{number}") for number in range(5)]
    jobs = [submit(cluster, flow) for flow in flows]
    with guarding(others_plane), guarding(others_plane):
        settled(cluster)
        for flow in flows:
            complete_workflow(cluster, flow)
        eventually(lambda: all(is_suspended(cluster, job) for job in jobs), SECONDS)
        settled(cluster)
        assert {cluster.get(TRAINJOB, name_of(job), "default")["metadata"]["generation"] for job in jobs} == {2}


def test_retried_step_keeps_its_job(others_plane: ControlPlane, cluster: Any) -> None:
    flow = create_workflow(cluster)
    job = submit(cluster, flow)
    with guarding(others_plane):
        settled(cluster)
        cluster.delete(POD, "flow-1-train-0", "default", grace_period_seconds=0)
        settled(cluster)
        assert not is_suspended(cluster, job), "its lease has not expired"
        create_step_pod(cluster, flow, 1)
        expire(cluster, job)
        settled(cluster)
        assert not is_suspended(cluster, job), "another try of its step waits"


def test_cluster_without_argo_has_leases_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(guard, "_UNSERVED_SECONDS", 0.2)
    caplog.set_level("INFO")
    plane = ControlPlane(Home(tmp_path / "home"), gates=FeatureGates(), controllers=(), node=False)
    plane.start()
    with served_workflows():
        flow = create_workflow(plane.cluster)
        noted, leased = submit(plane.cluster, flow), submit(plane.cluster, flow, step="another")
        cluster = plane.cluster
        plane.cluster.delete(POD, "flow-1-another-0", "default", grace_period_seconds=0)
        expire(plane.cluster, leased)
        complete_workflow(plane.cluster, flow)
    with guarding(plane):
        eventually(lambda: is_suspended(cluster, leased), SECONDS)
        assert not is_suspended(cluster, noted)
        with served_workflows():
            eventually(lambda: is_suspended(cluster, noted), SECONDS, "workflows are served since")
    told = [record for record in caplog.records if "kind=Workflow" in record.getMessage()]
    assert [(record.levelname, "not_watched" in record.getMessage()) for record in told] == [("INFO", True)]
    plane.stop(2)


def test_kind_that_may_not_be_read_is_warned_of_once(
    others_plane: ControlPlane, cluster: Any, start: Callable[..., Running]
) -> None:
    def shut(right: Any, _path: str) -> int | None:
        return 403 if right is not None and "workflows" in right.resource else None

    flow = create_workflow(cluster)
    noted, leased = submit(cluster, flow), submit(cluster, flow, step="another")
    complete_workflow(cluster, flow)
    cluster.delete(POD, "flow-1-another-0", "default", grace_period_seconds=0)
    expire(cluster, leased)
    running = start("--namespace", "default", command=("guard",), shut=shut)
    eventually(lambda: is_suspended(cluster, leased), 3 * SECONDS)
    assert not is_suspended(cluster, noted)
    assert running.end() == 0
    (line,) = (line for line in running.said().splitlines() if "kind=Workflow" in line)
    assert "WARNING" in line


def test_guard_of_a_namespace_leaves_others_alone(others_plane: ControlPlane, cluster: Any) -> None:
    cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
    flow = create_workflow(cluster)
    job = submit(cluster, flow)
    complete_workflow(cluster, flow)
    with guarding(others_plane, GuardOptions(namespace="team", mode=Mode.trainjob)):
        eventually(lambda: [name_of(lease) for lease in cluster.list(LEASE, "team").items] == ["trainwright-guard"], SECONDS)
    assert not is_suspended(cluster, job)
    with pytest.raises(NotFound):
        cluster.get(LEASE, "trainwright-guard", "default")


def test_adopted_job_is_kept(others_plane: ControlPlane, cluster: Any) -> None:
    flow, again = create_workflow(cluster), create_workflow(cluster, "flow-2")
    job = submit(cluster, flow)
    note = {names.WAITING_POD_ANNOTATION: note_of(create_step_pod(cluster, again), again)}
    with guarding(others_plane):
        settled(cluster)
        cluster.patch(TRAINJOB, name_of(job), {"metadata": {"annotations": note}}, "default")
        complete_workflow(cluster, flow)
        settled(cluster)
        assert not is_suspended(cluster, job)
        cluster.delete(WORKFLOW, "flow-2", "default")
        eventually(lambda: is_suspended(cluster, job), SECONDS)


@pytest.mark.parametrize("broken", [(KeyQueue, "take"), (guard.Reflector, "run"), (guard.LeaderElector, "acquire")])
def test_guard_without_one_of_its_threads_ends_and_releases_its_lease(
    others_plane: ControlPlane, cluster: Any, monkeypatch: pytest.MonkeyPatch, broken: tuple[type, str]
) -> None:
    monkeypatch.setattr(guard, "_CHECK_SECONDS", 1.0)
    monkeypatch.setattr(*broken, lambda *_: None)
    result = CliRunner().invoke(app, ["guard", "--kubeconfig", str(others_plane._home.kubeconfig), "-n", "default"])
    assert result.exit_code == 1
    assert "the guard ends: its thread" in result.stderr
    leases = cluster.list(LEASE, "default").items
    assert [lease["spec"]["holderIdentity"] for lease in leases] == ([] if broken[1] == "acquire" else [""])


def test_lease_renewed_in_the_year_9999_ends_no_guard(others_plane: ControlPlane, cluster: Any) -> None:
    job = submit(cluster, create_workflow(cluster))
    renewed = {"metadata": {"annotations": {names.WAITER_RENEWED_ANNOTATION: "9999-12-31T23:59:59Z"}}}
    cluster.patch(TRAINJOB, name_of(job), renewed, "default")
    with guarding(others_plane, GuardOptions(mode=Mode.trainjob)):
        eventually(lambda: cluster.list(LEASE, "default").items, SECONDS)
        settled(cluster)
    assert not is_suspended(cluster, job)


def test_note_that_cannot_be_read_hinders_no_other_job(others_plane: ControlPlane, cluster: Any) -> None:
    evil, flow = submit(cluster, create_workflow(cluster, "a-evil")), create_workflow(cluster)
    deep = {"metadata": {"annotations": {names.WAITING_POD_ANNOTATION: "[" * 100_000}}}
    cluster.patch(TRAINJOB, name_of(evil), deep, "default")
    job = submit(cluster, flow)
    with guarding(others_plane, GuardOptions(mode=Mode.trainjob)):
        eventually(lambda: cluster.list(LEASE, "default").items, SECONDS)
        complete_workflow(cluster, flow)
        eventually(lambda: is_suspended(cluster, job), SECONDS)
    assert not is_suspended(cluster, evil)


@pytest.mark.parametrize("mode", [Mode.trainjob, Mode.jobset])
def test_little_is_kept_of_a_large_job(cluster: Any, mode: Mode) -> None:
    view = cluster if mode is Mode.trainjob else JobSetCluster(cluster)
    job = submit(view, create_workflow(cluster))
    assert guard.trim(job)["metadata"]["annotations"].items() <= job["metadata"]["annotations"].items()
    owners = [{"apiVersion": "a/v1", "kind": "Workflow", "name": "n" * 300, "uid": f"{number:036d}"} for number in range(3000)]
    notes = dict.fromkeys((*job["metadata"]["annotations"], names.SUSPENDED_BY_ANNOTATION), "x" * 100_000)
    conditions = [{"type": f"t{number}", "status": "True", "reason": "r", "message": "m" * 9999} for number in range(999)]
    large = {"metadata": {**job["metadata"], "annotations": notes, "ownerReferences": owners}, "spec": job["spec"]}
    kept = guard.trim({**large, "status": {"conditions": conditions}})
    assert len(json.dumps(kept)) < 16_000
    assert names.SUSPENDED_BY_ANNOTATION in kept["metadata"]["annotations"], (
        "that it is there tells that a person resumed the job"
    )
    assert runs_of(kept) == runs_of(large) == ()
