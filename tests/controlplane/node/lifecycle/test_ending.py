"""Why and when a pod as a whole stops, and how much time that leaves its containers."""

from __future__ import annotations

from typing import Any

import pytest
from lifecycle_states import NOW, NOW_TEXT, deleted_pod, ended, init, main, pod_with, running, sidecar

from trainwright.controlplane.node.lifecycle.container_state import ContainerState
from trainwright.controlplane.node.lifecycle.ending import (
    DEADLINE_MESSAGE,
    DEADLINE_REASON,
    Ending,
    deadline_at,
    ending_of,
    grace_left,
    grace_seconds,
    is_terminal,
)

STARTED = {"startTime": NOW_TEXT}


@pytest.mark.parametrize(
    ("policy", "states", "is_over"),
    [
        ("Never", [main()], False),
        ("Never", [main(running())], False),
        ("Never", [main(ended(0))], True),
        ("Never", [main(ended(1))], True),
        ("Never", [main(ended(1)), main(running(), name="n")], False),
        ("Never", [main(ended(1)), main(ended(0), name="n")], True),
        ("OnFailure", [main(ended(0))], True),
        ("OnFailure", [main(ended(1))], False),
        ("Always", [main(ended(0))], False),
        ("Never", [init(ended(0)), main()], False),
        ("Never", [init(ended(1)), main()], True),
        ("OnFailure", [init(ended(1)), main()], False),
        ("Never", [sidecar(ended(1)), main()], False),
        ("Never", [sidecar(running()), main(ended(0))], True),
    ],
)
def test_pod_ends_when_its_containers_have_finished(policy: str, states: list[ContainerState], is_over: bool) -> None:
    ending = ending_of(pod_with(policy, terminationGracePeriodSeconds=7), states, NOW)
    assert (ending is not None) == is_over
    if ending is not None:
        assert (ending.grace_seconds, ending.reason, ending.message, ending.is_deletion) == (7, "", "", False)


def test_grace_is_thirty_seconds_unless_the_pod_says_otherwise() -> None:
    assert [grace_seconds(pod_with(**spec)) for spec in ({}, {"terminationGracePeriodSeconds": 0})] == [30, 0]


@pytest.mark.parametrize(
    ("spec", "status", "at"),
    [
        ({}, STARTED, None),
        ({"activeDeadlineSeconds": 5}, {}, None),
        ({"activeDeadlineSeconds": 5}, STARTED, NOW + 5),
    ],
)
def test_the_deadline_counts_from_the_start_on_the_node(spec: dict[str, Any], status: dict[str, Any], at: float | None) -> None:
    assert deadline_at(pod_with(status=status, **spec)) == at


def test_a_pod_that_passes_its_deadline() -> None:
    pod = pod_with("Always", status=STARTED, activeDeadlineSeconds=5, terminationGracePeriodSeconds=2)
    assert ending_of(pod, [main(running())], NOW + 4.9) is None
    assert ending_of(pod, [main(running())], NOW + 5) == Ending(2, DEADLINE_REASON, DEADLINE_MESSAGE, began_at=NOW + 5)


@pytest.mark.parametrize(("grace", "expected"), [(0, 0), (3, 3)])
def test_a_deletion_has_a_grace_of_its_own(grace: int, expected: float) -> None:
    ending = ending_of(deleted_pod(grace=grace, terminationGracePeriodSeconds=60), [main(running())], NOW)
    assert ending is not None
    assert (ending.grace_seconds, ending.reason, ending.is_deletion) == (expected, "", True)
    assert ending.began_at == NOW + 1  # what the timestamp cut off is the pod's


def test_a_deletion_without_a_grace_has_the_pods() -> None:
    pod = pod_with(metadata={"deletionTimestamp": NOW_TEXT}, terminationGracePeriodSeconds=4)
    ending = ending_of(pod, [main(running())], NOW)
    assert ending is not None
    assert ending.grace_seconds == 4


def test_a_deadline_that_passes_during_the_deletion_is_why_the_pod_failed() -> None:
    pod = deleted_pod(grace=9, activeDeadlineSeconds=5) | {"status": STARTED}
    before, after = (ending_of(pod, [main(running())], NOW + seconds) for seconds in (4, 5))
    assert before is not None
    assert after is not None
    assert (before.reason, after.reason) == ("", DEADLINE_REASON)
    assert (after.grace_seconds, after.is_deletion, after.began_at) == (9, True, before.began_at)


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


def test_a_sidecar_waits_for_its_turn_within_the_pods_grace() -> None:
    ending = ending_of(pod_with(terminationGracePeriodSeconds=10), [sidecar(running()), main(ended(0, ago=4))], NOW)
    assert ending is not None
    assert ending.began_at == NOW - 4
    assert [grace_left(ending, sidecar(running()), NOW + seconds) for seconds in (-60, -4, 0, 6, 60)] == [10, 10, 6, 0, 0]
    assert grace_left(ending, main(running()), NOW + 60) == 10
    assert grace_left(Ending(1.0, "Evicted"), sidecar(running()), NOW) == 1


def test_the_grace_of_a_pod_that_is_done_begins_with_the_last_end() -> None:
    ending = ending_of(pod_with(), [main(ended(0, ago=9)), main(ended(1, ago=3), name="n")], NOW)
    assert ending is not None
    assert ending.began_at == NOW - 3
    failed = ending_of(pod_with(), [sidecar(running()), init(ended(1, ago=2)), main()], NOW)
    assert failed is not None
    assert failed.began_at == NOW - 2
