"""A 403 of an API server that has just been started passes; that of a person without permission is told at once."""

from __future__ import annotations

from typing import Any

import pytest
from support.virtual_time import VirtualClock

from trainwright.api.errors import Forbidden, ServiceUnavailable
from trainwright.api.kinds import POD
from trainwright.backoff import Backoff
from trainwright.cluster import refusals, retrying
from trainwright.cluster.kubernetes_cluster import KubernetesCluster
from trainwright.cluster.refusals import AccessDenied, NotYetAuthorized, Permission, ServerState

DENIED = AccessDenied("pods is forbidden", Permission("list", "pods"))


@pytest.fixture
def cluster(cluster: KubernetesCluster, monkeypatch: pytest.MonkeyPatch) -> KubernetesCluster:
    monkeypatch.setattr(refusals, "_POLL_SECONDS", 0.01)
    monkeypatch.setattr(retrying, "_BACKOFF", Backoff(0.01, 0.01))
    return cluster


def refuse(stub: Any, times: int = 1) -> None:
    for _ in range(times):
        stub.fail(403, "Forbidden", "pods is forbidden")


def test_every_client_of_the_process_knows_of_the_restart(stub: Any, cluster: KubernetesCluster) -> None:
    stub.fail(503, "ServiceUnavailable", "no backend")
    with pytest.raises(ServiceUnavailable):
        cluster.list(POD, "team")
    refuse(stub)
    with pytest.raises(NotYetAuthorized, match=r"may not know permissions yet: pods is forbidden"):
        cluster.with_timeout(5).get(POD, "a", "team")


def test_a_new_client_waits_for_a_server_that_refuses_everything(stub: Any, cluster: KubernetesCluster) -> None:
    refuse(stub, 6)
    stub.answer({"metadata": {"name": "a"}})
    assert cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "team"}})
    assert [asked.method for asked in stub.asked] == ["POST", "GET"] * 3 + ["POST"]
    assert {asked.path for asked in stub.asked if asked.method == "GET"} == {"/version"}


def test_a_person_without_permission_is_told_at_once(stub: Any, cluster: KubernetesCluster) -> None:
    refuse(stub)
    stub.answer({"gitVersion": "v1.36.3"})
    refuse(stub)
    for _ in range(2):
        with pytest.raises(AccessDenied):
            cluster.list(POD, "team")
    assert [asked.path for asked in stub.asked].count("/version") == 1


def outcome(state: ServerState, is_refusing: bool) -> type[Exception] | None:
    try:
        state.check(DENIED, lambda: is_refusing)
    except (Forbidden, NotYetAuthorized) as error:
        return type(error)
    return None


def test_a_server_is_not_waited_for_for_ever() -> None:
    clock, state = VirtualClock(), ServerState()
    with clock.installed():
        while outcome(state, is_refusing=True) is None:
            assert clock.now < 20
        assert clock.now == pytest.approx(refusals.STARTING_SECONDS)
        clock.jump(100.0)
        assert outcome(state, is_refusing=True) is AccessDenied, "what refuses /version in any case is not waited for again"
        state.note_lost()
        clock.jump(100.0 + refusals.PASSING_SECONDS - 1)
        assert outcome(state, is_refusing=False) is NotYetAuthorized
        state.note_authorized()
        assert outcome(state, is_refusing=False) is AccessDenied
        state.note_lost()
        clock.jump(clock.now + refusals.PASSING_SECONDS)
        assert outcome(state, is_refusing=False) is AccessDenied
