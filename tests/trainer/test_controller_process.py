"""`trainwright controller` on a cluster of somebody else's, over real HTTP: what it finishes, what it refuses, how it ends."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from support.proxied_controllers import Running, create, find_jobset, jobset_of_somebody
from support.running_plane import create_runtime_once
from support.waiting import eventually

from trainwright.api import names
from trainwright.api.conditions import condition, is_finished
from trainwright.api.errors import NotFound
from trainwright.api.kinds import EVENT, JOBSET, LEASE, NAMESPACE, TRAINJOB
from trainwright.api.objects import is_controlled_by, name_of
from trainwright.cluster import connect
from trainwright.controlplane.controllers.metrics import ObjectMetrics
from trainwright.embedded.plane import ControlPlane
from trainwright.jobs import wait_for
from trainwright.trainer.standalone.process import THREAD_ENDED, Options, run

Start = Callable[..., Running]
QUICK = ("--lease-duration", "3", "--renew-deadline", "2", "--retry-period", "0.3")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def lease(plane: ControlPlane, name: str = "trainwright-controller") -> dict[str, Any]:
    return plane.cluster.get(LEASE, name, "default")["spec"]


def created_jobsets(*controllers: Running) -> int:
    return sum(right.verb == "create" and right.resource.startswith("jobsets") for one in controllers for right in one.door.asked)


def test_trainjobs_complete_and_the_end_is_orderly(others_plane: ControlPlane, start: Start) -> None:
    before = [create(others_plane, f"before-{number}") for number in range(2)]
    controller = start()
    after = create(others_plane, "after", "exit 3", runtimeRef={"name": create_runtime_once(others_plane.cluster)})
    for job in before:
        assert (condition(wait_for(others_plane.cluster, job), "Complete") or {})["reason"] == "AllJobsCompleted"
    eventually(lambda: is_finished(others_plane.cluster.get(TRAINJOB, "after", "default")))
    assert condition(others_plane.cluster.get(TRAINJOB, "after", "default"), "Failed") is not None
    assert is_controlled_by(find_jobset(others_plane, "after") or {}, after)
    assert controller.page("/healthz") == (200, "ok\n")
    eventually(lambda: controller.page("/readyz")[0] == 200)
    assert controller.page("/metrics", of="metrics")[0] == 200
    for line in (
        "trainwright_leader 1.0\n",
        'trainwright_trainjobs{phase="Succeeded"} 2.0\n',
    ):  # which it counts as it hears of them
        eventually(lambda line=line: line in controller.page("/metrics", of="metrics")[1])  # type: ignore[misc]
    assert controller.page("/metrics")[0] == 404  # health only
    assert lease(others_plane)["holderIdentity"]
    assert controller.end() == 0
    assert lease(others_plane)["holderIdentity"] == ""
    assert "Traceback" not in controller.said()


def test_controller_process_ignores_jobs_of_other_managers_and_namespaces(others_plane: ControlPlane, start: Start) -> None:
    others_plane.cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
    assert others_plane.cluster.get(NAMESPACE, "team")
    create(others_plane, "elsewhere")
    create(others_plane, "queued", namespace="team", managedBy=names.MULTIKUEUE_CONTROLLER)
    controller = start("--namespace", "team", "--no-leader-elect", "--workers", "1")
    wait_for(others_plane.cluster, create(others_plane, "ours", namespace="team"))
    assert find_jobset(others_plane, "elsewhere") is None
    assert find_jobset(others_plane, "queued", "team") is None
    assert {right.namespace for right in controller.door.written()} == {"team"}
    assert controller.end() == 0
    with pytest.raises(NotFound):
        lease(others_plane)


def test_trainjob_that_cannot_be_built_gets_an_event(others_plane: ControlPlane, start: Start) -> None:
    start("--no-leader-elect")
    others_plane.cluster.create(jobset_of_somebody("taken"))
    eventually(lambda: is_finished(others_plane.cluster.get(JOBSET, "taken", "default")))
    create(others_plane, "taken")

    def events() -> list[str]:
        found = others_plane.cluster.list(EVENT, "default").items
        return [event["message"] for event in found if event["reason"] == "TrainJobResourcesCreationFailed"]

    assert "the JobSet taken exists and belongs to another object" in eventually(events)[0]
    wait_for(others_plane.cluster, create(others_plane, "next"))


def test_a_release_hands_over_at_once(others_plane: ControlPlane, start: Start) -> None:
    first = start("--lease-duration", "600", "--retry-period", "0.3")
    first.await_line("reconciling namespace")
    second = start("--lease-duration", "600", "--retry-period", "0.3")
    second.await_line("holder=")
    eventually(lambda: second.page("/readyz")[0] == 200)
    code, text = second.page("/metrics", of="metrics")
    assert (code, "trainwright_leader 0.0\n" in text, "trainwright_trainjobs" in text) == (200, True, False)
    assert first.end() == 0
    second.await_line("reconciling namespace", 15)
    assert lease(others_plane)["leaseTransitions"] == 1
    wait_for(others_plane.cluster, create(others_plane, "demo"))
    assert created_jobsets(first, second) == 1


def test_a_leader_that_is_killed_is_replaced_and_its_work_finished(
    others_plane: ControlPlane, start: Start, tmp_path: Any
) -> None:
    first = start(*QUICK)
    first.await_line("reconciling namespace")
    second = start(*QUICK)
    second.await_line("holder=")
    go = tmp_path / "go"
    jobs = [create(others_plane, f"job-{number}", f"while [ ! -e {go} ]; do sleep 0.05; done") for number in range(4)]
    eventually(lambda: find_jobset(others_plane, "job-0"))
    first.process.send_signal(signal.SIGKILL)
    jobs += [create(others_plane, f"late-{number}") for number in range(2)]
    second.await_line("reconciling namespace", 15)
    go.touch()
    for job in jobs:
        wait_for(others_plane.cluster, job)
    sets = others_plane.cluster.list(JOBSET, "default").items
    assert sorted(map(name_of, sets)) == sorted(map(name_of, jobs))
    assert created_jobsets(first, second) == len(jobs)
    assert lease(others_plane)["leaseTransitions"] == 1


def test_a_leader_that_cannot_renew_stops_writing_and_goes(others_plane: ControlPlane, start: Start) -> None:
    shut = False

    def door(right: Any, path: str) -> int | None:
        return 0 if shut and right is not None and right.resource.startswith("leases") else None

    first = start(*QUICK, shut=door)
    first.await_line("reconciling namespace")
    wait_for(others_plane.cluster, create(others_plane, "one"))
    second = start(*QUICK)
    second.await_line("holder=")
    shut = True  # the Lease hangs; all else is open
    assert first.process.wait(15) == 5
    assert "could not be renewed in time" in first.said()
    written = len(first.door.written())
    second.await_line("reconciling namespace", 15)
    wait_for(others_plane.cluster, create(others_plane, "two"))
    assert len(first.door.written()) == written
    assert created_jobsets(first, second) == 2


def test_a_leader_that_was_asleep_writes_nothing_when_it_wakes(others_plane: ControlPlane, start: Start) -> None:
    first = start(*QUICK)
    first.await_line("reconciling namespace")
    wait_for(others_plane.cluster, create(others_plane, "one"))
    second = start(*QUICK)
    second.await_line("holder=")
    first.process.send_signal(signal.SIGSTOP)
    second.await_line("reconciling namespace", 15)
    written = len(first.door.written())
    waiting = [create(others_plane, f"job-{number}") for number in range(5)]
    first.process.send_signal(signal.SIGCONT)  # and finds news of five TrainJobs waiting
    assert first.process.wait(15) == 5
    for job in waiting:
        wait_for(others_plane.cluster, job)
    assert len(first.door.written()) == written
    assert created_jobsets(second) == len(waiting)


def test_the_end_waits_for_the_key_in_hand(others_plane: ControlPlane, start: Start) -> None:
    asked, go_on = threading.Event(), threading.Event()

    def door(right: Any, path: str) -> int | None:
        if right is not None and f"{right.verb} {right.resource}" == "create jobsets.jobset.x-k8s.io":
            asked.set()
            go_on.wait(20)
        return None

    controller = start(shut=door)
    create(others_plane, "demo")
    assert asked.wait(20)
    controller.process.send_signal(signal.SIGTERM)
    eventually(lambda: controller.page("/readyz") == (503, "ending\n"))
    assert lease(others_plane)["holderIdentity"]
    go_on.set()
    assert controller.process.wait(20) == 0
    assert find_jobset(others_plane, "demo") is not None
    assert lease(others_plane)["holderIdentity"] == ""


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_watch_that_ends_unasked_ends_the_process(nodeless: ControlPlane, tmp_path: Any, monkeypatch: Any) -> None:
    def broken(event: str, obj: Any) -> None:
        raise SystemExit  # an Exception concerns its object alone

    monkeypatch.setattr(ObjectMetrics, "handlers", lambda object_metrics: {TRAINJOB: broken})
    create(nodeless, "demo")
    cluster = connect(tmp_path / "home" / "kubeconfig")
    assert run(cluster, Options(leader_election=None, metrics_port=0, health_port=0), threading.Event()) == THREAD_ENDED


def test_a_restart_in_the_middle_changes_nothing(others_plane: ControlPlane, start: Start, tmp_path: Any) -> None:
    go = tmp_path / "go"
    first = start(*QUICK)
    job = create(others_plane, "demo", f"while [ ! -e {go} ]; do sleep 0.05; done")
    before = eventually(lambda: find_jobset(others_plane, "demo"))
    first.process.kill()
    first.process.wait()
    go.touch()
    eventually(lambda: is_finished(others_plane.cluster.get(JOBSET, "demo", "default")))
    assert not is_finished(others_plane.cluster.get(TRAINJOB, "demo", "default"))
    second = start("--no-leader-elect")
    wait_for(others_plane.cluster, job)
    assert (find_jobset(others_plane, "demo") or {})["metadata"]["uid"] == before["metadata"]["uid"]
    assert created_jobsets(first, second) == 1


def test_rights_that_are_missing_are_all_told_at_once(start: Start) -> None:
    denied = ("patch trainjobs.trainer.kubeflow.org/status", "create events", "update leases.coordination.k8s.io")
    controller = start(denied=denied)
    assert controller.process.wait(30) == 1
    assert (
        f"missing permissions: {denied[0]}; {denied[1]}; {denied[2]} in the namespace default, name trainwright-controller."
        in controller.said()
    )
    assert not controller.door.written()


@pytest.mark.parametrize("verb", ["patch trainjobs.trainer.kubeflow.org/status", "create jobsets.jobset.x-k8s.io"])
def test_a_right_that_is_refused_is_told_by_verb_and_resource(others_plane: ControlPlane, start: Start, verb: str) -> None:
    controller = start(
        "--no-leader-elect", shut=lambda right, path: 403 if right and f"{right.verb} {right.resource}" == verb else None
    )
    create(others_plane, "demo")
    controller.await_line(f"missing permission: {verb} in the namespace default")


def test_a_watch_that_is_refused_is_told_at_readyz(start: Start) -> None:
    controller = start(
        "--no-leader-elect", shut=lambda right, path: 403 if right and str(right).startswith("list jobsets") else None
    )
    controller.await_line("missing permission: list jobsets.jobset.x-k8s.io")
    eventually(lambda: controller.page("/readyz")[0] == 503, 10, "it is not ready")
    assert "missing permission: list jobsets.jobset.x-k8s.io" in controller.page("/readyz")[1]


def test_a_cluster_without_jobset_is_refused_by_name(start: Start) -> None:
    controller = start(shut=lambda right, path: 404 if path == "/apis/jobset.x-k8s.io/v1alpha2" else None)
    assert controller.process.wait(30) == 1
    assert "does not serve jobsets.jobset.x-k8s.io" in controller.said()
    assert "Traceback" not in controller.said()


def test_beside_trainers_own_manager_it_waits_and_then_works(others_plane: ControlPlane, start: Start) -> None:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    others_plane.cluster.create(
        {
            "apiVersion": LEASE.api_version,
            "kind": "Lease",
            "metadata": {"name": "trainer.kubeflow.org", "namespace": "kubeflow-system"},
            "spec": {"holderIdentity": "manager-0", "leaseDurationSeconds": 5, "renewTime": now},
        }
    )
    controller = start()
    controller.await_line("event=waiting_for_upstream_manager")
    code, text = controller.page("/readyz")
    assert code == 503
    assert "manager-0 holds the Lease kubeflow-system/trainer.kubeflow.org" in text
    assert controller.page("/healthz")[0] == 200
    controller.await_line("reconciling namespace")  # the Lease has expired
    wait_for(others_plane.cluster, create(others_plane, "demo"))
    assert controller.end() == 0


def test_a_taken_port_and_terms_that_cannot_work_end_it(start: Start) -> None:
    first = start("--no-leader-elect")
    port = first.await_line("serving health").split("127.0.0.1:")[1].split()[0]
    second = start("--no-leader-elect", "--health-port", port)
    assert second.process.wait(30) == 3
    assert f"127.0.0.1:{port} for health" in second.said()
    third = start("--lease-duration", "5")
    assert third.process.wait(30) == 2
    assert "must be more than the renew deadline" in third.said()
