"""What is known of a container, and how much of it the published status has got to."""

from __future__ import annotations

from typing import Any

import pytest
from lifecycle_states import NOW, ended, identity, init, main, pod_with, running, sidecar, starting

from trainwright.controlplane.node.lifecycle.container_state import (
    ContainerState,
    Role,
    Run,
    Termination,
    containers_of,
    field_path,
    published_status,
    visible_states,
)


@pytest.mark.parametrize(
    ("run", "more", "seen"),
    [
        (None, {}, (False, False, False)),
        (starting(), {}, (True, False, False)),
        (running(), {}, (True, True, True)),
        (running(), {"is_startup_passed": False}, (True, True, False)),
        (Run(0, "", NOW, is_held=True), {}, (True, False, False)),
        (ended(), {}, (False, False, False)),
        (Run(0, "", None, Termination(128, NOW, reason="StartError")), {}, (False, False, False)),
    ],
)
def test_container_state_distinguishes_alive_running_and_started(
    run: Run | None, more: dict[str, Any], seen: tuple[bool, bool, bool]
) -> None:
    state = main(run, **more)
    assert (state.is_alive, state.is_running, state.has_started) == seen


def test_restarts_are_the_attempts_before() -> None:
    assert [state.restarts for state in (main(), main(running()), main(ended(attempt=3)))] == [0, 0, 3]


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        (Termination(0, NOW), "Completed"),
        (Termination(1, NOW), "Error"),
        (Termination(137, NOW, reason="OOMKilled"), "OOMKilled"),
    ],
)
def test_why_a_run_ended(how: Termination, reason: str) -> None:
    assert how.why == reason


def test_containers_in_the_order_of_their_start() -> None:
    pod = pod_with(
        containers=[{"name": "a", "restartPolicy": "Always"}, {"name": "b"}],
        initContainers=[
            {"name": "c"},
            {"name": "d", "restartPolicy": "Always"},
            {"name": "e", "restartPolicy": "Never"},
            {"name": "f", "restartPolicy": "Always", "restartPolicyRules": [{"action": "Restart"}]},
        ],
    )
    found = [(container["name"], role) for container, role in containers_of(pod)]
    assert found == [
        ("c", Role.INIT),
        ("d", Role.SIDECAR),
        ("e", Role.INIT),
        ("f", Role.INIT),
        ("a", Role.MAIN),
        ("b", Role.MAIN),
    ]
    assert list(containers_of({"spec": {"initContainers": None, "containers": None}})) == []


def test_paths_that_events_name() -> None:
    assert [field_path(state) for state in (main(), init(), sidecar())] == [
        "spec.containers{m}",
        "spec.initContainers{i}",
        "spec.initContainers{s}",
    ]


RUNNING = {"name": "m", "containerID": identity(), "state": {"running": {}}}
ENDED = {"name": "m", "containerID": identity(), "state": {"terminated": {"containerID": identity()}}}
WAITS = {
    "name": "m",
    "containerID": identity(),
    "state": {"waiting": {"reason": "CrashLoopBackOff"}},
    "lastState": {"terminated": {"containerID": identity()}},
}
BEFORE = {"name": "m", "containerID": "process://u/m/-1", "state": {"running": {}}}


@pytest.mark.parametrize(
    ("shown", "is_seen"),
    [([], False), ([BEFORE], False), ([{**RUNNING, "name": "n"}], False), ([RUNNING], True), ([ENDED], True), ([WAITS], True)],
)
def test_a_run_is_seen_to_end_only_after_it_was_seen_to_run(shown: list[dict[str, Any]], is_seen: bool) -> None:
    pod = pod_with(status={"containerStatuses": shown})
    (state,) = visible_states(pod, [main(ended(3))])
    assert (state.ended is not None) == is_seen
    assert state.is_running != is_seen


@pytest.mark.parametrize(
    "state",
    [
        main(),
        main(running()),
        main(Run(0, identity(), None, Termination(128, NOW, reason="StartError"))),
        main(Run(0, identity(), NOW - 2, Termination(137, NOW, NOW - 2), is_held=True)),
    ],
    ids=["not started", "running", "could not be started", "its postStart hook failed"],
)
def test_visible_states_keep_containers_that_have_not_ended(state: ContainerState) -> None:
    assert visible_states(pod_with(), [state]) == (state,)


def test_container_that_ends_before_the_next_starts_is_shown_as_ended() -> None:
    quick, slow = main(ended(7, ago=2)), main(running(name="n", since=1), name="n")
    assert visible_states(pod_with(), [quick, slow]) == (quick, slow)
    later = main(ended(7, ago=0.5))
    assert visible_states(pod_with(), [later, slow])[0].is_running
    seen = pod_with(status={"containerStatuses": [{"name": "n", "containerID": identity(name="n"), "state": {"running": {}}}]})
    assert visible_states(seen, [quick, slow])[0].is_running, "its start was shown: the other one came later"


def test_statuses_by_name() -> None:
    pod = pod_with(status={"initContainerStatuses": [{"name": "i", "x": 1}], "containerStatuses": [{"name": "m", "x": 2}]})
    assert [published_status(pod, name).get("x") for name in ("i", "m", "none")] == [1, 2, None]
