"""The status of a pod as a kubelet would show it, from the states of its containers."""

from __future__ import annotations

from typing import Any

import pytest

from trainwright.controlplane.node.lifecycle.container_state import (
    Blocked,
    ContainerState,
    Role,
    Run,
    Termination,
)
from trainwright.controlplane.node.lifecycle.decision import ending_of
from trainwright.controlplane.node.lifecycle.pod_status import pod_status

NOW = 1_800_000_000.0
GOOD, BAD = Termination(0, NOW, NOW - 1), Termination(3, NOW, NOW - 1)


def pod_with(policy: str = "Never", **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p", "namespace": "n", "uid": "u", **more}, "spec": {"restartPolicy": policy}}


def state(name: str = "c", role: Role = Role.MAIN, run: Run | None = None, **more: Any) -> ContainerState:
    return ContainerState(name, role, {"name": name, "image": "i"}, run, **more)


def running(attempt: int = 0) -> Run:
    return Run(attempt, f"process://u/c/{attempt}", NOW - 5)


def ended(how: Termination, attempt: int = 0, backoff: float = 0.0) -> Run:
    return Run(attempt, f"process://u/c/{attempt}", NOW - 5, how, backoff)


def status_of(pod: dict[str, Any], *states: ContainerState) -> dict[str, Any]:
    return pod_status(pod, states, ending_of(pod, states, NOW), NOW, "127.1.2.3")


def test_blocked_container_has_a_waiting_state() -> None:
    blocked = state(blocked=Blocked("CreateContainerConfigError", 'configmap "late" not found', NOW + 1))
    (shown,) = status_of(pod_with(), blocked)["containerStatuses"]
    assert shown["state"]["waiting"] == {"reason": "CreateContainerConfigError", "message": 'configmap "late" not found'}


@pytest.mark.parametrize("published", ["Succeeded", "Failed"])
def test_a_pod_that_has_ended_does_not_change_its_mind(published: str) -> None:
    deleted = pod_with("Never", deletionTimestamp="2026-01-01T00:00:00Z") | {"status": {"phase": published, "reason": "Because"}}
    status = status_of(deleted, state(run=ended(BAD if published == "Succeeded" else GOOD)))
    assert (status["phase"], status["reason"]) == (published, "Because")
    ready = next(entry for entry in status["conditions"] if entry["type"] == "Ready")
    assert ready["reason"] == {"Succeeded": "PodCompleted", "Failed": "PodFailed"}[published]


def test_statuses_are_in_the_order_of_names_and_those_of_init_containers_in_that_of_the_spec() -> None:
    inits = [state("z", Role.INIT, ended(GOOD)), state("a", Role.SIDECAR, running())]
    status = status_of(pod_with(), *inits, state("y", run=running()), state("b", run=running()))
    assert [entry["name"] for entry in status["containerStatuses"]] == ["b", "y"]
    assert [entry["name"] for entry in status["initContainerStatuses"]] == ["z", "a"]


UNKNOWN, INITIALIZING = "ContainerStatusUnknown", "PodInitializing"
