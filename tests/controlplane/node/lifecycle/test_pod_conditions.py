"""The conditions of a pod through its life, with the kubelet's reasons and messages."""

from __future__ import annotations

from typing import Any

import pytest
from lifecycle_states import NOW, main, pod_with, running

from trainwright.controlplane.node.lifecycle.container_state import ContainerState
from trainwright.controlplane.node.lifecycle.decision import ending_of
from trainwright.controlplane.node.lifecycle.pod_status import pod_status, put_condition

KINDS = ("PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready")
UNREADY = "ContainersNotReady: containers with unready status:"


def conditions(pod: dict[str, Any], *states: ContainerState, address: str = "127.1.2.3", now: float = NOW) -> dict[str, str]:
    """The conditions by their type: `True` or the reason and message, `+` before a reason of what is true."""
    status = pod_status(pod, states, ending_of(pod, states, now), now, address)
    found = {}
    for entry in status["conditions"]:
        words = ": ".join(entry[key] for key in ("reason", "message") if key in entry)
        found[entry["type"]] = f"+{words}".rstrip("+") or "True" if entry["status"] == "True" else words or "False"
    return {kind: found[kind] for kind in KINDS}


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
