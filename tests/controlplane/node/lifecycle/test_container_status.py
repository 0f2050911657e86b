"""The status of one container, as the API shows it."""

from __future__ import annotations

from typing import Any

import pytest
from lifecycle_states import NOW, NOW_TEXT, deleted_pod, ended, identity, init, main, pod_with, running, sidecar, starting

from trainwright.controlplane.node.lifecycle.container_state import Blocked, ContainerState, Run, Termination
from trainwright.controlplane.node.lifecycle.container_status import (
    container_status,
    shows_back_off,
    timestamp,
    unknown_status,
)
from trainwright.controlplane.node.lifecycle.ending import Ending, ending_of


def shown(
    state: ContainerState, pod: dict[str, Any] | None = None, ending: Ending | None = None, now: float = NOW
) -> dict[str, Any]:
    return container_status(pod or pod_with("Always"), state, ending, now)


def reason(status: dict[str, Any]) -> str:
    """The kind of a state, and its reason."""
    ((kind, state),) = status["state"].items()
    return f"{kind} {state.get('reason', '')}".strip()


def after(state: ContainerState, pod: dict[str, Any] | None = None) -> dict[str, Any]:
    """The status of a container that is looked at again after it was published."""
    pod = pod or pod_with("Always")
    key = "initContainerStatuses" if state.role.value != "main" else "containerStatuses"
    return shown(state, {**pod, "status": {key: [shown(state, pod)]}})


@pytest.mark.parametrize(
    ("state", "flags", "kind"),
    [
        (main(), (False, False), "waiting ContainerCreating"),
        (main(starting()), (False, False), "waiting ContainerCreating"),
        (main(running()), (True, True), "running"),
        (main(running(), is_ready=False), (False, True), "running"),
        (main(running(), is_startup_passed=False), (False, False), "running"),
        (main(Run(0, identity(), NOW, is_held=True)), (False, False), "waiting ContainerCreating"),
        (main(ended(0)), (False, False), "terminated Completed"),
        (main(ended(1)), (False, False), "terminated Error"),
        (main(ended(137, reason="OOMKilled")), (False, False), "terminated OOMKilled"),
        (init(running()), (False, True), "running"),
        (init(ended(0)), (True, False), "terminated Completed"),
        (init(ended(1)), (False, False), "terminated Error"),
        (sidecar(running()), (True, True), "running"),
        (sidecar(running(), is_ready=False), (False, True), "running"),
        (sidecar(running(), is_startup_passed=False), (False, False), "running"),
        (sidecar(ended(0)), (False, False), "terminated Completed"),
    ],
)
def test_ready_started_and_state(state: ContainerState, flags: tuple[bool, bool], kind: str) -> None:
    status = shown(state, pod_with("Never"))
    assert ((status["ready"], status["started"]), reason(status)) == (flags, kind)


def test_all_of_a_status() -> None:
    assert shown(main(running(2, since=60), previous=Termination(3, NOW - 61, NOW - 90, message="last words"))) == {
        "name": "m",
        "image": "image:1",
        "imageID": "",
        "ready": True,
        "started": True,
        "restartCount": 2,
        "containerID": identity(2),
        "state": {"running": {"startedAt": timestamp(NOW - 60)}},
        "lastState": {
            "terminated": {
                "exitCode": 3,
                "reason": "Error",
                "message": "last words",
                "startedAt": timestamp(NOW - 90),
                "finishedAt": timestamp(NOW - 61),
                "containerID": identity(1),
            }
        },
    }
    assert "containerID" not in shown(main())
    assert timestamp(NOW) == NOW_TEXT


@pytest.mark.parametrize("state", [main(), init(), sidecar()])
def test_with_init_containers_all_wait_for_the_initialization(state: ContainerState) -> None:
    assert reason(shown(state, pod_with(initContainers=[{"name": "i"}]))) == "waiting PodInitializing"


def test_blocked_container_waits_with_the_reason() -> None:
    blocked = Blocked("ErrImageNeverPull", "not here", NOW + 1)
    assert shown(main(blocked=blocked))["state"] == {"waiting": {"reason": "ErrImageNeverPull", "message": "not here"}}
    again = shown(main(ended(1, 1, 10.0), blocked=blocked))
    assert reason(again) == "waiting ErrImageNeverPull"
    assert again["lastState"]["terminated"]["containerID"] == identity(1)
    assert reason(shown(main(ended(1), blocked=blocked), pod_with("Never"))) == "terminated Error"


WORDS = "restarting failed container=m pod=p_n(u)"


@pytest.mark.parametrize(
    ("backoff", "message"),
    [(10.0, f"back-off 10s {WORDS}"), (160.0, f"back-off 2m40s {WORDS}"), (300.0, f"back-off 5m0s {WORDS}")],
)
def test_a_back_off_is_shown_after_the_end(backoff: float, message: str) -> None:
    state = main(ended(3, 2, backoff), previous=Termination(4, NOW - 9, NOW - 10))
    first = shown(state)
    assert reason(first) == "terminated Error"
    assert (first["lastState"]["terminated"]["exitCode"], first["lastState"]["terminated"]["containerID"]) == (4, identity(1))
    second = after(state)
    assert second["state"] == {"waiting": {"reason": "CrashLoopBackOff", "message": message}}
    assert (second["lastState"]["terminated"]["exitCode"], second["lastState"]["terminated"]["containerID"]) == (3, identity(2))
    assert (second["restartCount"], second["containerID"], second["ready"]) == (2, identity(2), False)


def test_there_is_none_before_the_first_restart_nor_after_the_end_for_good() -> None:
    assert reason(after(main(ended(3)))) == "terminated Error"
    assert reason(after(main(ended(3, 1, 10.0)), pod_with("Never"))) == "terminated Error"
    assert reason(after(sidecar(ended(1, 1, 10.0)), pod_with("Never"))) == "waiting CrashLoopBackOff"
    assert reason(after(init(ended(1, 1, 10.0)), pod_with("OnFailure"))) == "waiting CrashLoopBackOff"


@pytest.mark.parametrize(("code", "kind"), [(0, "terminated Completed"), (1, "waiting CrashLoopBackOff")])
def test_the_back_off_of_a_sidecar_is_told_but_not_shown_after_success(code: int, kind: str) -> None:
    pod, run = pod_with("Never"), sidecar(ended(code, 1, 10.0))
    assert not shows_back_off(pod, run, NOW)
    published = {**pod, "status": {"initContainerStatuses": [after(run, pod)]}}
    assert reason(after(run, pod)) == kind
    assert shows_back_off(published, run, NOW)
    assert not shows_back_off(published, sidecar(running(2)), NOW)


def test_a_back_off_is_shown_until_the_next_run_has_started() -> None:
    state = main(ended(3, 1, 10.0))
    waits = pod_with("Always", status={"containerStatuses": [after(state)]})
    assert reason(shown(state, waits, now=NOW + 11)) == "waiting CrashLoopBackOff"
    assert reason(shown(main(running(2), previous=Termination(3, NOW, NOW - 1)), waits)) == "running"


@pytest.mark.parametrize(
    ("pod", "evicted", "kind"),
    [
        (deleted_pod("Always"), "", "terminated Error"),
        (pod_with("Always"), "too much", "waiting CrashLoopBackOff"),
    ],
)
def test_container_of_a_stopping_pod_shows_how_it_ended(pod: dict[str, Any], evicted: str, kind: str) -> None:
    state = main(ended(3, 1, 10.0))
    pod = {**pod, "status": {"containerStatuses": [after(state)]}}
    assert reason(shown(state, pod, ending_of(pod, [state], NOW, evicted))) == kind
    seen = {**pod, "status": {"containerStatuses": [shown(state)]}}
    assert reason(shown(state, seen, ending_of(pod, [state], NOW, evicted))) == "terminated Error"


def test_a_program_that_cannot_be_started() -> None:
    broken = Run(0, identity(), None, Termination(128, NOW, 0.0, "StartError", "exec: no such file"), 0.0)
    assert reason(shown(main(broken), pod_with("Never"))) == "terminated StartError"
    again = shown(main(broken))
    assert again["state"] == {"waiting": {"reason": "RunContainerError", "message": "exec: no such file"}}
    terminated = again["lastState"]["terminated"]
    assert (terminated["exitCode"], terminated["startedAt"]) == (128, "1970-01-01T00:00:00Z")


def test_a_container_that_was_lost_with_its_pod() -> None:
    status = unknown_status(shown(main(running(1), previous=Termination(3, NOW, NOW - 1))))
    assert status["state"] == {
        "terminated": {
            "reason": "ContainerStatusUnknown",
            "message": "The container could not be located when the pod was terminated",
            "exitCode": 137,
            "startedAt": None,
            "finishedAt": None,
        }
    }
    assert (status["ready"], status["started"], status["restartCount"]) == (False, False, 1)
    assert status["lastState"]["terminated"]["exitCode"] == 3
