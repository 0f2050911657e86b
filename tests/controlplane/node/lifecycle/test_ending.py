"""Why and when a pod as a whole stops, and how much time that leaves its containers."""

from __future__ import annotations

import pytest
from lifecycle_states import NOW, NOW_TEXT, deleted_pod, ended, main, pod_with, running

from trainwright.controlplane.node.lifecycle.decision import (
    Ending,
    ending_of,
    is_terminal,
)

STARTED = {"startTime": NOW_TEXT}


def test_a_deletion_without_a_grace_has_the_pods() -> None:
    pod = pod_with(metadata={"deletionTimestamp": NOW_TEXT}, terminationGracePeriodSeconds=4)
    ending = ending_of(pod, [main(running())], NOW)
    assert ending is not None
    assert ending.grace_seconds == 4


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_deadline_that_passes_after_the_end_means_nothing(phase: str) -> None:
    pod = deleted_pod(activeDeadlineSeconds=5) | {"status": {**STARTED, "phase": phase}}
    ending = ending_of(pod, [main(ended(0))], NOW + 60)
    assert is_terminal(pod)
    assert ending is not None
    assert ending.reason == ""


def test_an_eviction_leaves_a_second_and_stands_before_all_else() -> None:
    pod = deleted_pod(grace=30, activeDeadlineSeconds=1) | {"status": STARTED}
    found = ending_of(pod, [main(running())], NOW + 60, "Usage of EmptyDir volume ... ")
    assert found == Ending(1, "Evicted", "Usage of EmptyDir volume ... ", is_deletion=True)
