from __future__ import annotations

import pytest

from trainwright.controlplane.node.container import Termination
from trainwright.controlplane.node.pod_status import ContainerState, phase, pod_status

WAITING = ContainerState("c", "i")
RUNNING = ContainerState("c", "i", running_since=1.0)
OK = ContainerState("c", "i", terminated=Termination(0, 0, 1.0, 2.0))
BAD = ContainerState("c", "i", terminated=Termination(137, 9, 1.0, 2.0))


@pytest.mark.parametrize(
    ("policy", "init", "main", "deleting", "expected"),
    [
        ("Never", [], [WAITING], False, "Pending"),
        ("Never", [RUNNING], [WAITING], False, "Pending"),
        ("Never", [OK], [RUNNING], False, "Running"),
        ("Never", [], [OK], False, "Succeeded"),
        ("Never", [], [OK, BAD], False, "Failed"),
        ("Never", [], [OK, RUNNING], False, "Running"),
        ("Never", [BAD], [WAITING], False, "Failed"),
        ("OnFailure", [], [BAD], False, "Running"),
        ("OnFailure", [BAD], [WAITING], False, "Pending"),
        ("OnFailure", [], [OK], False, "Succeeded"),
        ("OnFailure", [], [BAD], True, "Failed"),
        ("Always", [], [OK], False, "Running"),
    ],
)
def test_the_phase_of_a_pod(
    policy: str, init: list[ContainerState], main: list[ContainerState], deleting: bool, expected: str
) -> None:
    assert phase(policy, init, main, deleting=deleting) == expected


def test_the_status_says_how_a_container_ended_and_keeps_transition_times() -> None:
    pod = {"metadata": {"name": "p"}, "spec": {"restartPolicy": "Never"}}
    first = pod_status(pod, [], [RUNNING], "2026-01-01T00:00:00Z")
    last = pod_status({**pod, "status": first}, [], [BAD], "2026-01-01T00:01:00Z")
    (container,) = last["containerStatuses"]
    assert container["state"]["terminated"]["exitCode"] == 137
    assert container["state"]["terminated"]["signal"] == 9
    times = {entry["type"]: entry["lastTransitionTime"] for entry in last["conditions"]}
    assert times["PodScheduled"] == "2026-01-01T00:00:00Z"
    assert times["Ready"] == "2026-01-01T00:01:00Z"
    assert last["startTime"] == "2026-01-01T00:00:00Z"
