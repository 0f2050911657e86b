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
    visible_states,
)
from trainwright.controlplane.node.lifecycle.ending import ending_of
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


def init(run: Run | None) -> ContainerState:
    return state("i", Role.INIT, run)


def side(run: Run | None) -> ContainerState:
    return ContainerState("s", Role.SIDECAR, {"name": "s", "image": "i", "restartPolicy": "Always"}, run)


@pytest.mark.parametrize(
    ("policy", "states", "phase"),
    [
        ("Never", [state()], "Pending"),
        ("Never", [init(running()), state()], "Pending"),
        ("Never", [init(ended(GOOD)), state(run=running())], "Running"),
        ("Never", [state(run=ended(GOOD))], "Succeeded"),
        ("Never", [state(run=ended(GOOD)), state("d", run=ended(BAD))], "Failed"),
        ("Never", [state(run=ended(GOOD)), state("d", run=running())], "Running"),
        ("Never", [init(ended(BAD)), state()], "Failed"),
        ("Never", [side(running()), state(run=ended(GOOD))], "Running"),
        ("Never", [side(ended(BAD)), state(run=ended(GOOD))], "Succeeded"),
        ("OnFailure", [state(run=ended(BAD))], "Running"),
        ("OnFailure", [init(ended(BAD)), state()], "Pending"),
        ("OnFailure", [state(run=ended(GOOD))], "Succeeded"),
        ("Always", [state(run=ended(GOOD))], "Running"),
    ],
)
def test_the_phase(policy: str, states: list[ContainerState], phase: str) -> None:
    assert status_of(pod_with(policy), *states)["phase"] == phase


def test_a_deleted_pod_has_succeeded_only_if_its_containers_have() -> None:
    deleted = pod_with("OnFailure", deletionTimestamp="2026-01-01T00:00:00Z", deletionGracePeriodSeconds=3)
    assert status_of(deleted, state(run=ended(BAD)))["phase"] == "Failed"
    assert status_of(deleted, state(run=ended(GOOD)))["phase"] == "Succeeded"
    never_started = status_of(deleted, state())
    assert never_started["phase"] == "Failed"
    assert never_started["containerStatuses"][0]["state"]["terminated"]["reason"] == "ContainerStatusUnknown"


def test_conditions_have_reasons_only_where_there_is_something_to_say() -> None:
    ready = {entry["type"]: entry for entry in status_of(pod_with(), state(run=running()))["conditions"]}
    assert all(entry["status"] == "True" and "reason" not in entry and "message" not in entry for entry in ready.values())
    failed = {entry["type"]: entry for entry in status_of(pod_with(), state(run=ended(BAD)))["conditions"]}
    assert failed["Ready"]["reason"] == failed["ContainersReady"]["reason"] == "PodFailed"
    assert failed["PodReadyToStartContainers"]["status"] == "False"
    waiting = {entry["type"]: entry for entry in status_of(pod_with(), init(running()), state())["conditions"]}
    assert waiting["Initialized"]["message"] == "containers with incomplete status: [i]"
    assert waiting["Ready"]["message"] == "containers with unready status: [c]"


def test_transition_times_change_with_the_value_only() -> None:
    pod = pod_with()
    first = pod_status(pod, [state(run=running())], None, NOW - 60, "127.1.2.3")
    last = status_of({**pod, "status": first}, state(run=ended(BAD)))
    times = {entry["type"]: entry["lastTransitionTime"] for entry in last["conditions"]}
    assert times["PodScheduled"] == first["startTime"] == last["startTime"]
    assert times["Ready"] > times["PodScheduled"]


def test_a_restart_waits_after_its_end_was_seen() -> None:
    pod = pod_with("Always")
    waiting = state(run=ended(BAD, 1, 10.0), previous=BAD)
    seen = status_of(pod, waiting)
    assert "terminated" in seen["containerStatuses"][0]["state"]
    after = status_of({**pod, "status": seen}, waiting)["containerStatuses"][0]
    assert after["state"]["waiting"] == {
        "reason": "CrashLoopBackOff",
        "message": "back-off 10s restarting failed container=c pod=p_n(u)",
    }
    assert after["lastState"]["terminated"]["exitCode"] == 3


def test_a_run_is_seen_running_before_it_is_seen_to_end() -> None:
    pod, states = pod_with(), (state(run=ended(GOOD)),)
    (first,) = visible_states(pod, states)
    assert first.is_running
    shown = {**pod, "status": status_of(pod, first)}
    assert visible_states(shown, states) == states


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


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        pytest.param([state()], [UNKNOWN], id="without init containers"),
        pytest.param([init(None), state()], [UNKNOWN, INITIALIZING], id="before the first one"),
        pytest.param([init(ended(BAD)), state()], ["Error", INITIALIZING], id="after a failure"),
        pytest.param([init(ended(GOOD)), state()], ["Completed", UNKNOWN], id="before the main ones"),
        pytest.param([side(ended(GOOD)), state()], ["Completed", INITIALIZING], id="with a sidecar that was no help"),
        pytest.param(
            [init(ended(BAD)), state("j", Role.INIT), state()], ["Error", INITIALIZING, INITIALIZING], id="in the middle"
        ),
        pytest.param(
            [init(ended(GOOD)), state(run=ended(BAD)), state("d")], ["Completed", "Error", UNKNOWN], id="after one of two"
        ),
    ],
)
def test_unobserved_endings_are_unknown_for_containers_that_were_due(states: list[ContainerState], expected: list[str]) -> None:
    deleted = pod_with("OnFailure", deletionTimestamp="2026-01-01T00:00:00Z", deletionGracePeriodSeconds=3)
    deleted["spec"]["initContainers"] = [{"name": each.name} for each in states if each.role is not Role.MAIN]
    status = status_of(deleted, *states)
    entries = [*status.get("initContainerStatuses", []), *status["containerStatuses"]]
    assert [reason for entry in entries for reason in (next(iter(entry["state"].values()))["reason"],)] == expected
    assert status["phase"] == "Failed"
    assert (status["hostIP"], status["podIP"], status["podIPs"]) == ("127.0.0.1", "127.1.2.3", [{"ip": "127.1.2.3"}])


def test_a_sidecar_in_its_back_off_is_lost_with_its_pod() -> None:
    crashed, pod = side(ended(BAD, 1, 10.0)), pod_with()
    waits = pod_status(pod, [crashed, state(run=running())], None, NOW, "127.1.2.3")
    waits = pod_status({**pod, "status": waits}, [crashed, state(run=running())], None, NOW, "127.1.2.3")
    assert waits["initContainerStatuses"][0]["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    (last,) = status_of({**pod, "status": waits}, crashed, state(run=ended(GOOD)))["initContainerStatuses"]
    assert last["state"]["terminated"]["reason"] == UNKNOWN
    assert last["lastState"]["terminated"]["exitCode"] == 3


def test_the_generation_that_was_looked_at() -> None:
    assert status_of(pod_with(generation=4), state())["observedGeneration"] == 4
    assert "observedGeneration" not in status_of(pod_with(), state())


def test_why_a_pod_failed_is_told_when_it_has_stopped() -> None:
    late = {"startTime": "2026-01-01T00:00:00Z", "phase": "Running"}
    pod = pod_with() | {"status": late}
    pod["spec"]["activeDeadlineSeconds"] = 1
    assert "reason" not in status_of(pod, state(run=running()))
    status = status_of(pod, state(run=ended(GOOD)))
    assert (status["phase"], status["reason"]) == ("Failed", "DeadlineExceeded")
    assert status["message"] == "Pod was active on the node longer than the specified deadline"
