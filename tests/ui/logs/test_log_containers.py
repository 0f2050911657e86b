"""Whether a container has a log, and whether it may run again."""

from __future__ import annotations

from typing import Any

import pytest
from factories import pod

from trainwright.ui.logs.log_lines import container_state

ENDED = {"terminated": {"exitCode": 0}}
FAILED = {"terminated": {"exitCode": 1, "reason": "Error"}}


@pytest.mark.parametrize(
    ("policy", "state", "phase", "is_over"),
    [
        ("Never", {"running": {}}, "Running", False),
        ("Never", FAILED, "Running", True),
        ("OnFailure", FAILED, "Running", False),
        ("OnFailure", ENDED, "Running", True),
        ("Always", ENDED, "Running", False),
        ("OnFailure", {"waiting": {"reason": "CrashLoopBackOff"}}, "Running", False),
        ("OnFailure", {"waiting": {}}, "Failed", True),
    ],
)
def test_a_container_is_over_when_it_cannot_run_again(policy: str, state: dict[str, Any], phase: str, is_over: bool) -> None:
    entry = {"name": "main", "state": state, "restartCount": 1}
    found = container_state(pod(restartPolicy=policy, status={"phase": phase, "containerStatuses": [entry]}), "main")
    assert found.is_over is is_over
    assert found.restarts == 1


def test_init_containers_end_and_sidecars_restart() -> None:
    init = [{"name": "init", "image": "i"}, {"name": "sidecar", "image": "i", "restartPolicy": "Always"}]
    states = [{"name": name, "state": ENDED} for name in ("init", "sidecar")]
    found = pod(restartPolicy="Always", initContainers=init, status={"phase": "Running", "initContainerStatuses": states})
    assert container_state(found, "init").is_over
    assert not container_state(found, "sidecar").is_over


def test_a_container_that_the_status_does_not_mention_is_waiting() -> None:
    found = container_state(pod(status={"phase": "Pending", "reason": "Unschedulable"}), "main")
    assert (found.name, found.reason, found.is_over) == ("waiting", "Unschedulable", False)
