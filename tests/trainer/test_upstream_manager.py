"""Trainer's own manager beside our controller: it waits, not ready, and goes on when that one has gone."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from support.waiting import eventually

from trainwright.api.errors import ApiError, Forbidden, ServiceUnavailable
from trainwright.api.kinds import LEASE
from trainwright.cluster import connect
from trainwright.cluster.protocol import Cluster
from trainwright.embedded.plane import ControlPlane
from trainwright.trainer.standalone import upstream_manager
from trainwright.trainer.standalone.leader_election import LeaderElectionConfig
from trainwright.trainer.standalone.process import STOPPED, Options, Process
from trainwright.trainer.standalone.upstream_manager import Sight, UpstreamManager

NOW = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)


class Leases:
    """Leases of managers, or an error; the time of a virtual clock."""

    def __init__(self) -> None:
        self.found: list[dict[str, Any]] | ApiError = []
        self.seconds = 1000.0

    def list(self, _kind: Any, namespace: Any = None, *, field_selector: str = "") -> Any:
        assert field_selector == "metadata.name=trainer.kubeflow.org"
        if isinstance(self.found, ApiError):
            raise self.found
        return type("Listing", (), {"items": self.found})

    def manager(self) -> UpstreamManager:
        clock = lambda: NOW + timedelta(seconds=self.seconds - 1000)  # noqa: E731
        return UpstreamManager(self, monotonic=lambda: self.seconds, clock=clock)  # type: ignore[arg-type]


def lease(age: float = 0, holder: str = "manager-0", duration: int = 15, namespace: str = "kubeflow-system") -> dict[str, Any]:
    renewed = (NOW - timedelta(seconds=age)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {"holderIdentity": holder, "leaseDurationSeconds": duration, "renewTime": renewed}
    return {"metadata": {"name": "trainer.kubeflow.org", "namespace": namespace}, "spec": spec}


@pytest.mark.parametrize(
    ("found", "is_active"),
    [
        ([], False),
        ([lease(0)], True),
        ([lease(-30)], True),  # another clock
        ([lease(540)], False),
        ([lease(0, holder="")], False),
        ([lease(540), lease(0, namespace="opendatahub")], True),
        ([{**lease(0), "spec": {"holderIdentity": "x", "renewTime": "nonsense"}}], True),
        (ServiceUnavailable("overloaded"), None),
        (Forbidden("no"), None),
    ],
)
def test_who_is_active(found: Any, is_active: bool | None) -> None:
    leases = Leases()
    leases.found = found
    sight, holder = leases.manager().look()
    assert sight is {True: Sight.held, False: Sight.free, None: Sight.unknown}[is_active]
    assert bool(holder) is (is_active is not False)


def test_a_right_is_missing_only_if_nothing_else_is_answered_for_a_while() -> None:
    """A restarted API server answers 403 to everybody for seconds."""
    leases = Leases()
    manager = leases.manager()
    for wait, found, sight in (
        (0, Forbidden("no"), Sight.unknown),
        (14, Forbidden("no"), Sight.unknown),
        (0.5, [lease(-14.5)], Sight.held),
        (2, Forbidden("no"), Sight.unknown),
        (14, Forbidden("no"), Sight.unknown),
        (1, Forbidden("no"), Sight.free),
        (60, Forbidden("no"), Sight.free),
    ):
        leases.seconds += wait
        leases.found = found
        assert manager.look()[0] is sight, leases.seconds


def test_manager_counts_as_gone_when_its_lease_expires_unrenewed() -> None:
    leases = Leases()
    manager, leases.found = leases.manager(), [lease(5)]
    held = (Sight.held, "manager-0 holds the Lease kubeflow-system/trainer.kubeflow.org")
    for _ in range(5):  # renewed in time
        assert manager.look() == held
        leases.seconds += 14
        assert manager.look() == held
        leases.found = [lease(1000 - leases.seconds)]
    assert manager.look() == held
    leases.seconds += 15
    assert manager.look() == (Sight.free, "")
    leases.found = [lease(1000 - leases.seconds, holder="manager-1")]
    assert manager.look()[0] is Sight.held, "the next one"
    leases.found = [lease(1000 - leases.seconds, holder="")]
    assert manager.look() == (Sight.free, ""), "released: at once"


@pytest.fixture
def cluster(nodeless: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setattr(upstream_manager, "POLL_SECONDS", 0.02)
    return connect(tmp_path / "home" / "kubeconfig")


def held(duration: int) -> dict[str, Any]:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {"holderIdentity": "manager-0", "leaseDurationSeconds": duration, "renewTime": now}
    metadata = {"name": "trainer.kubeflow.org", "namespace": "kubeflow-system"}
    return {"apiVersion": LEASE.api_version, "kind": LEASE.kind, "metadata": metadata, "spec": spec}


@pytest.mark.slow
@pytest.mark.parametrize("is_released", [True, False], ids=["released", "expired"])
def test_the_controller_waits_not_ready_and_then_works(cluster: Any, is_released: bool) -> None:
    there = cluster.create(held(600 if is_released else 1))
    process, stop = Process(cluster, Options(metrics_port=0, health_port=0)), threading.Event()
    codes: list[int] = []
    running = threading.Thread(target=lambda: codes.append(process.run(stop)), daemon=True)
    running.start()
    waiting = (503, "waiting for Trainer's own manager: manager-0 holds the Lease kubeflow-system/trainer.kubeflow.org\n")
    eventually(lambda: process.ready() == waiting, 10)
    assert process.alive() == (200, "ok\n")
    if is_released:
        cluster.update({**there, "spec": {**there["spec"], "holderIdentity": ""}})
    eventually(lambda: process.ready() == (200, "ok\n") and process._controllers, 20)
    stop.set()
    running.join(20)
    assert codes == [STOPPED]


@pytest.mark.slow
def test_a_manager_that_starts_while_it_waits_for_its_own_lease_is_let_go_first(cluster: Any) -> None:
    other = held(600)
    own = {**other, "metadata": {"name": "trainwright-controller", "namespace": "default"}}
    replica = cluster.create(own)
    process, stop = Process(cluster, Options(metrics_port=0, health_port=0)), threading.Event()
    running = threading.Thread(target=process.run, args=(stop,), daemon=True)
    running.start()
    eventually(lambda: process.ready() == (200, "ok\n"), 10, "a standby is ready")
    there = cluster.create(other)
    cluster.update({**replica, "spec": {**replica["spec"], "holderIdentity": ""}})
    eventually(lambda: process.ready()[0] == 503, 10)
    eventually(lambda: not cluster.get(LEASE, "trainwright-controller", "default")["spec"]["holderIdentity"], 10)
    assert not process._controllers
    cluster.update({**there, "spec": {**there["spec"], "holderIdentity": ""}})
    eventually(lambda: process._controllers, 10)
    stop.set()
    running.join(20)
    assert not running.is_alive()


@pytest.mark.medium
@pytest.mark.parametrize("elects", [True, False])
def test_controllers_stop_when_the_manager_returns(cluster: Any, elects: bool) -> None:
    """Whatever has kept the manager from its Lease for a while: an upgrade, a drain, a restart of the API server."""
    election = LeaderElectionConfig(retry_period=0.2) if elects else None
    process, stop = Process(cluster, Options(leader_election=election)), threading.Event()
    codes: list[int] = []
    running = threading.Thread(target=lambda: codes.append(process.run(stop)), daemon=True)
    running.start()
    eventually(lambda: process._controllers and process.ready() == (200, "ok\n"), 20, "it reconciles")
    there = cluster.create(held(600))
    eventually(lambda: process.ready()[0] == 503 and not process._controllers, 10, "it waits again")
    if elects:
        eventually(lambda: not cluster.get(LEASE, "trainwright-controller", "default")["spec"]["holderIdentity"], 10)
    assert process.alive() == (200, "ok\n")
    assert "trainwright_leader 0.0" in process.metrics()[1]
    eventually(lambda: not process._running_workers(), 10, "the workers end")
    cluster.update({**there, "spec": {**there["spec"], "holderIdentity": ""}})
    eventually(lambda: process._controllers and process.ready() == (200, "ok\n"), 20, "it reconciles again")
    stop.set()
    running.join(20)
    assert codes == [STOPPED]


@pytest.mark.slow
def test_a_stop_ends_the_wait(cluster: Any) -> None:
    cluster.create(held(600))
    process, stop = Process(cluster, Options(metrics_port=0, health_port=0)), threading.Event()
    threading.Timer(0.2, stop.set).start()
    assert process.run(stop) == STOPPED
