"""What the node does next for a pod: starts, and when it looks again."""

from __future__ import annotations

from typing import Any

from lifecycle_states import NOW, ended, main, pod_with

from trainwright.controlplane.node.lifecycle.container_state import Blocked, ContainerState
from trainwright.controlplane.node.lifecycle.decision import Decision, Launch, decide, ending_of


def decided(pod: dict[str, Any], *states: ContainerState) -> Decision:
    return decide(pod, states, ending_of(pod, states, NOW), NOW)


def launches(decision: Decision) -> list[tuple[str, int, float]]:
    """Name, attempt and back-off of what is started."""
    return [(each.container.name, each.attempt, each.backoff_seconds) for each in decision.actions if isinstance(each, Launch)]


def test_blocked_container_is_retried_when_due() -> None:
    later = main(blocked=Blocked("CreateContainerConfigError", "no such ConfigMap", NOW + 2))
    assert decided(pod_with(), later) == Decision((), NOW + 2)
    now = main(blocked=Blocked("CreateContainerConfigError", "no such ConfigMap", NOW))
    assert launches(decided(pod_with(), now)) == [("m", 0, 0)]
    again = main(ended(1, 1, 10.0, ago=60), blocked=Blocked("CreateContainerConfigError", "gone", NOW + 4))
    assert decided(pod_with("Always"), again) == Decision((), NOW + 4)
