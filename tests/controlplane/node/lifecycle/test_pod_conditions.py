"""The conditions of a pod through its life, with the kubelet's reasons and messages."""

from __future__ import annotations

from typing import Any

import pytest
from lifecycle_states import NOW, NOW_TEXT, deleted_pod, ended, init, main, pod_with, running, sidecar

from trainwright.controlplane.node.lifecycle.container_state import ContainerState
from trainwright.controlplane.node.lifecycle.ending import ending_of
from trainwright.controlplane.node.lifecycle.pod_conditions import put_condition
from trainwright.controlplane.node.lifecycle.pod_status import pod_status

KINDS = ("PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready")
UNREADY = "ContainersNotReady: containers with unready status:"
INCOMPLETE = "ContainersNotInitialized: containers with incomplete status:"


def conditions(pod: dict[str, Any], *states: ContainerState, address: str = "127.1.2.3", now: float = NOW) -> dict[str, str]:
    """The conditions by their type: `True` or the reason and message, `+` before a reason of what is true."""
    status = pod_status(pod, states, ending_of(pod, states, now), now, address)
    found = {}
    for entry in status["conditions"]:
        words = ": ".join(entry[key] for key in ("reason", "message") if key in entry)
        found[entry["type"]] = f"+{words}".rstrip("+") or "True" if entry["status"] == "True" else words or "False"
    return {kind: found[kind] for kind in KINDS}


@pytest.mark.parametrize(
    ("policy", "states", "expected"),
    [
        pytest.param("Never", [main()], ("True", "True", f"{UNREADY} [m]"), id="not started"),
        pytest.param("Never", [main(running())], ("True", "True", "True"), id="runs"),
        pytest.param("Never", [main(running(), is_ready=False)], ("True", "True", f"{UNREADY} [m]"), id="is not ready"),
        pytest.param(
            "Never", [main(running(), is_startup_passed=False)], ("True", "True", f"{UNREADY} [m]"), id="has not started"
        ),
        pytest.param("Never", [init(), main()], ("True", f"{INCOMPLETE} [i]", f"{UNREADY} [m]"), id="initializes"),
        pytest.param(
            "Never",
            [init(ended(0)), init(running(), name="j"), main()],
            ("True", f"{INCOMPLETE} [j]", f"{UNREADY} [m]"),
            id="one of two is done",
        ),
        pytest.param("Never", [init(ended(0)), main()], ("True", "True", f"{UNREADY} [m]"), id="is initialized"),
        pytest.param("OnFailure", [init(ended(1)), main()], ("True", f"{INCOMPLETE} [i]", f"{UNREADY} [m]"), id="tries again"),
        pytest.param("Never", [sidecar(), main()], ("True", f"{INCOMPLETE} [s]", f"{UNREADY} [s m]"), id="a sidecar waits"),
        pytest.param(
            "Never",
            [sidecar(running(), is_startup_passed=False), main()],
            ("True", f"{INCOMPLETE} [s]", f"{UNREADY} [s m]"),
            id="a sidecar is probed",
        ),
        pytest.param("Never", [sidecar(running()), main()], ("True", "True", f"{UNREADY} [m]"), id="a sidecar has started"),
        pytest.param(
            "Never", [sidecar(running(), is_ready=False), main(running())], ("True", "True", f"{UNREADY} [s]"), id="unready"
        ),
        pytest.param("Never", [sidecar(ended(1)), main(running())], ("True", "True", f"{UNREADY} [s]"), id="a sidecar crashed"),
        pytest.param("Never", [sidecar(running()), main(ended(0))], ("True", "True", f"{UNREADY} [m]"), id="a sidecar stops"),
        pytest.param("Never", [main(ended(0))], ("False", "+PodCompleted", "PodCompleted"), id="has succeeded"),
        pytest.param(
            "Never", [sidecar(ended(1)), main(ended(0))], ("False", "+PodCompleted", "PodCompleted"), id="with a sidecar"
        ),
        pytest.param("Never", [main(ended(1))], ("False", "True", "PodFailed"), id="has failed"),
        pytest.param("Never", [init(ended(1)), main()], ("False", f"{INCOMPLETE} [i]", "PodFailed"), id="has not begun"),
        pytest.param(
            "Never",
            [sidecar(running()), init(ended(1)), main()],
            ("True", f"{INCOMPLETE} [i]", "PodFailed"),
            id="will fail: its sidecar stops",
        ),
        pytest.param("Always", [main(ended(1))], ("True", "True", f"{UNREADY} [m]"), id="is restarted"),
    ],
)
def test_conditions_of_a_life(policy: str, states: list[ContainerState], expected: tuple[str, str, str]) -> None:
    found = conditions(pod_with(policy), *states)
    assert (*(found[kind] for kind in KINDS[:3]), found["Ready"]) == (*expected, expected[2])


def test_conditions_of_a_deleted_pod() -> None:
    assert set(conditions(deleted_pod(), main(running())).values()) == {"True"}
    assert conditions(deleted_pod(), main(ended(0)))["Ready"] == "PodCompleted"
    failed = conditions(deleted_pod(), main(ended(137)))
    assert (failed["Ready"], failed["Initialized"], failed["PodReadyToStartContainers"]) == ("PodFailed", "True", "False")


def test_failed_pod_shows_its_conditions_before_it_has_stopped() -> None:
    late = pod_with(status={"startTime": NOW_TEXT}, activeDeadlineSeconds=0)
    assert conditions(late, main(running())) == {
        "PodReadyToStartContainers": "True",
        "Initialized": "True",
        "ContainersReady": "PodFailed",
        "Ready": "PodFailed",
    }


def test_without_volumes_there_is_no_sandbox() -> None:
    assert conditions(pod_with(), main(), address="")["PodReadyToStartContainers"] == "False"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], 'corresponding condition of pod readiness gate "a/b" does not exist.'),
        ([{"type": "a/b", "status": "False"}], 'the status of pod readiness gate "a/b" is not "True", but False'),
        ([{"type": "a/b", "status": "Unknown"}], 'the status of pod readiness gate "a/b" is not "True", but Unknown'),
        ([{"type": "a/b", "status": "True"}], None),
    ],
)
def test_readiness_gates(given: list[dict[str, Any]], message: str | None) -> None:
    pod = pod_with(status={"conditions": given}, readinessGates=[{"conditionType": "a/b"}])
    found = conditions(pod, main(running()))
    assert found["ContainersReady"] == "True"
    assert found["Ready"] == (f"ReadinessGatesNotReady: {message}" if message else "True")
    assert conditions(pod, main(running(), is_ready=False))["Ready"] == f"{UNREADY} [m]"


def test_several_gates_are_told_together() -> None:
    gates = [{"conditionType": "a"}, {"conditionType": "b"}]
    pod = pod_with(status={"conditions": [{"type": "b", "status": "False"}]}, readinessGates=gates)
    assert conditions(pod, main(running()))["Ready"] == (
        'ReadinessGatesNotReady: corresponding condition of pod readiness gate "a" does not exist., '
        'the status of pod readiness gate "b" is not "True", but False'
    )


def test_others_conditions_are_kept() -> None:
    theirs = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", "lastTransitionTime": "x"}
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "y"}
    pod = pod_with(status={"conditions": [theirs, scheduled]})
    status = pod_status(pod, [main(running())], None, NOW, "127.1.2.3")
    assert theirs in status["conditions"]
    assert scheduled in status["conditions"]
    assert pod["status"] == {"conditions": [theirs, scheduled]}, "the pod itself is not changed"


def test_a_transition_time_changes_with_the_value_only() -> None:
    status: dict[str, Any] = {}
    put_condition(status, "Ready", False, "Why", "because", "1")
    put_condition(status, "Ready", False, "Other", "", "2")
    assert status["conditions"] == [
        {"type": "Ready", "status": "False", "lastProbeTime": None, "lastTransitionTime": "1", "reason": "Other"}
    ]
    put_condition(status, "Ready", True, "", "", "3")
    assert status["conditions"] == [{"type": "Ready", "status": "True", "lastProbeTime": None, "lastTransitionTime": "3"}]
