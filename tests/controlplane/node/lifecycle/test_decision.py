"""What the node does next for a pod: starts, stops, and when it looks again."""

from __future__ import annotations

from typing import Any

import pytest
from lifecycle_states import NOW, NOW_TEXT, deleted_pod, ended, init, main, pod_with, running, sidecar, starting

from trainwright.controlplane.node.lifecycle.container_state import Blocked, ContainerState
from trainwright.controlplane.node.lifecycle.decision import Decision, Launch, Stop, decide
from trainwright.controlplane.node.lifecycle.ending import ending_of


def decided(pod: dict[str, Any], *states: ContainerState, evicted: str = "") -> Decision:
    return decide(pod, states, ending_of(pod, states, NOW, evicted), NOW)


def launches(decision: Decision) -> list[tuple[str, int, float]]:
    """Name, attempt and back-off of what is started."""
    return [(each.container.name, each.attempt, each.backoff_seconds) for each in decision.actions if isinstance(each, Launch)]


def stops(decision: Decision) -> list[tuple[str, float, str]]:
    """Name, grace and message of what is stopped now."""
    turn = [each for each in decision.actions if isinstance(each, Stop) and not each.waits]
    return [(each.container.name, each.grace_seconds, each.message) for each in turn]


@pytest.mark.parametrize(
    ("policy", "states", "started"),
    [
        ("Never", [main(), main(name="n")], [("m", 0, 0), ("n", 0, 0)]),
        ("Never", [main(starting())], []),
        ("Never", [main(running())], []),
        ("Never", [init(), main()], [("i", 0, 0)]),
        ("Never", [init(ended(0)), main()], [("m", 0, 0)]),
        ("OnFailure", [init(ended(1)), main()], [("i", 1, 10)]),
        ("OnFailure", [init(ended(1, 1, 10.0, ago=9)), main()], []),
        ("OnFailure", [init(ended(1, 1, 10.0, ago=10)), main()], [("i", 2, 20)]),
        ("OnFailure", [main(ended(1))], [("m", 1, 10)]),
        ("OnFailure", [main(ended(1, 1, 10.0))], []),
        ("OnFailure", [main(ended(0)), main(running(), name="n")], []),
        ("Always", [main(ended(0))], [("m", 1, 10)]),
        ("Always", [main(ended(1, 9, 300.0, ago=300)), main(running(), name="n")], [("m", 10, 300)]),
        ("Always", [main(ended(1, 9, 300.0, ran=601))], [("m", 10, 10)]),
        ("Never", [main(ended(1)), main(running(), name="n")], []),
        ("Never", [sidecar(ended(1)), main(running())], [("s", 1, 10)]),
        ("Never", [sidecar(ended(0)), main(running())], [("s", 1, 10)]),
        ("Never", [sidecar(ended(1)), init(ended(0)), init(name="j"), main()], [("s", 1, 10), ("j", 0, 0)]),
    ],
)
def test_decision_starts_containers_in_order(policy: str, states: list[ContainerState], started: list[Any]) -> None:
    decision = decided(pod_with(policy), *states)
    assert launches(decision) == started
    assert stops(decision) == []


def test_blocked_container_is_retried_when_due() -> None:
    later = main(blocked=Blocked("CreateContainerConfigError", "no such ConfigMap", NOW + 2))
    assert decided(pod_with(), later) == Decision((), NOW + 2)
    now = main(blocked=Blocked("CreateContainerConfigError", "no such ConfigMap", NOW))
    assert launches(decided(pod_with(), now)) == [("m", 0, 0)]
    again = main(ended(1, 1, 10.0, ago=60), blocked=Blocked("CreateContainerConfigError", "gone", NOW + 4))
    assert decided(pod_with("Always"), again) == Decision((), NOW + 4)


def test_the_first_of_several_times_is_when_to_look_again() -> None:
    pod = pod_with("Always", status={"startTime": NOW_TEXT}, activeDeadlineSeconds=60)
    assert decided(pod, main(running())).wake_at == NOW + 60
    assert decided(pod, main(ended(1, 1, 10.0, ago=3)), main(ended(1, 2, 20.0), name="n")).wake_at == NOW + 7
    assert decided(pod_with("Always"), main(running())).wake_at is None
    going = deleted_pod(grace=99, activeDeadlineSeconds=60) | {"status": {"startTime": NOW_TEXT}}
    assert decided(going, main(running())).wake_at == NOW + 60
    assert decide(going, [main(running())], ending_of(going, [main(running())], NOW + 60), NOW + 60).wake_at is None


def test_a_deleted_pod_starts_nothing_and_stops_what_lives() -> None:
    pod = deleted_pod("Always", grace=5)
    assert stops(decided(pod, main(running()), main(ended(1), name="n"), main(name="o"))) == [("m", 5, "Stopping container m")]
    assert decided(pod, init(), main()).actions == ()
    assert stops(decided(pod, init(running()), main())) == [("i", 5, "Stopping container i")]
    assert launches(decided(pod, sidecar(ended(1)), main(running()))) == []


def test_sidecars_stop_last_in_reverse_and_within_the_pods_grace() -> None:
    pod = pod_with(terminationGracePeriodSeconds=8)
    both = [sidecar(running()), sidecar(running(), name="t")]
    assert stops(decided(pod, *both, main(running()))) == []
    assert stops(decided(pod, *both, main(ended(0)))) == [("t", 8, "Stopping container t")]
    assert stops(decided(pod, both[0], sidecar(ended(0), name="t"), main(ended(0, ago=3)))) == [("s", 5, "Stopping container s")]
    deleted = deleted_pod(grace=8)
    found = decided(deleted, *both, main(running()))
    assert stops(found) == [("m", 8, "Stopping container m")]
    waiting = [(each.container.name, each.waits) for each in found.actions if isinstance(each, Stop)]
    assert waiting == [("s", True), ("t", True), ("m", False)], "the preStop hooks of sidecars begin at once"
    assert stops(decide(deleted, [*both, main(ended(137))], ending_of(deleted, both, NOW + 7), NOW + 7)) == [
        ("t", 2, "Stopping container t")
    ]


def test_a_failed_init_container_takes_its_sidecar_with_it() -> None:
    found = decided(pod_with(terminationGracePeriodSeconds=4), sidecar(running()), init(ended(1)), main())
    assert (launches(found), stops(found)) == ([], [("s", 4, "Stopping container s")])


def test_a_sidecar_is_not_restarted_after_the_main_containers() -> None:
    assert decided(pod_with(), sidecar(ended(1, ago=60)), main(ended(0))) == Decision((), None)


def test_a_pod_past_its_deadline_and_one_that_is_evicted() -> None:
    late = pod_with("Always", status={"startTime": NOW_TEXT}, activeDeadlineSeconds=0, terminationGracePeriodSeconds=3)
    assert stops(decided(late, main(running()))) == [("m", 3, "Stopping container m")]
    assert stops(decided(pod_with("Always"), main(running()), evicted="too much")) == [("m", 1, "Stopping container m")]


LIVENESS = {"livenessProbe": {"terminationGracePeriodSeconds": 2}}


@pytest.mark.parametrize(
    ("policy", "states", "stopped"),
    [
        pytest.param(
            "Always",
            [main(running(), failed_probe="liveness")],
            [("m", 9, "Container m failed liveness probe, will be restarted")],
            id="restarted",
        ),
        pytest.param(
            "OnFailure",
            [main(running(), failed_probe="startup")],
            [("m", 9, "Container m failed startup probe, will be restarted")],
            id="its end would be a success, and is restarted all the same",
        ),
        pytest.param(
            "Always",
            [main(running(), spec=LIVENESS, failed_probe="liveness")],
            [("m", 2, "Container m failed liveness probe, will be restarted")],
            id="the probe's own grace",
        ),
        pytest.param(
            "Always",
            [main(running(), spec=LIVENESS, failed_probe="startup")],
            [("m", 9, "Container m failed startup probe, will be restarted")],
            id="of that probe only",
        ),
        pytest.param(
            "Never",
            [main(running(), spec=LIVENESS, failed_probe="liveness")],
            [("m", 9, "Stopping container m")],
            id="the last one takes the pod with it, whose grace it has",
        ),
        pytest.param(
            "Never",
            [main(running(), failed_probe="liveness"), main(running(), name="n")],
            [("m", 9, "Container m failed liveness probe")],
            id="another one goes on",
        ),
        pytest.param(
            "Never",
            [main(running(), failed_probe="liveness"), main(running(), name="n", failed_probe="liveness")],
            [("m", 9, "Stopping container m"), ("n", 9, "Stopping container n")],
            id="both fail",
        ),
        pytest.param(
            "Never",
            [main(running(), failed_probe="liveness"), main(ended(1), name="n")],
            [("m", 9, "Stopping container m")],
            id="the other one has ended",
        ),
        pytest.param(
            "Never",
            [main(running(), failed_probe="liveness"), main(ended(1, 1, 10.0), name="n", spec={"restartPolicy": "Always"})],
            [("m", 9, "Container m failed liveness probe")],
            id="the other one is started again",
        ),
        pytest.param(
            "Always",
            [main(running(), spec={"restartPolicy": "Never"}, failed_probe="liveness"), main(running(), name="n")],
            [("m", 9, "Container m failed liveness probe")],
            id="the container's own policy",
        ),
        pytest.param(
            "Never",
            [
                main(
                    running(),
                    spec={
                        "restartPolicy": "Never",
                        "restartPolicyRules": [{"action": "Restart", "exitCodes": {"operator": "In", "values": [137]}}],
                    },
                    failed_probe="liveness",
                ),
                main(running(), name="n"),
            ],
            [("m", 9, "Container m failed liveness probe")],
            id="no rule counts before there is an exit code",
        ),
        pytest.param(
            "Never",
            [sidecar(running(), failed_probe="liveness"), main(running())],
            [("s", 9, "Init container s failed liveness probe")],
            id="a sidecar",
        ),
        pytest.param(
            "Never",
            [sidecar(running(), failed_probe="startup", is_startup_passed=False), main()],
            [("s", 9, "Init container s failed startup probe")],
            id="a sidecar before the main ones",
        ),
        pytest.param("Always", [main(ended(137), failed_probe="liveness"), main(running(), name="n")], [], id="it has ended"),
    ],
)
def test_decision_stops_containers_whose_probe_failed(policy: str, states: list[ContainerState], stopped: list[Any]) -> None:
    assert stops(decided(pod_with(policy, terminationGracePeriodSeconds=9), *states)) == stopped
