"""Which pod made a job fail: by itself, by a disruption, deleted by somebody; and which ones were only stopped because of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from factories import container_status, event, pod, program_request, terminated
from hypothesis import given
from hypothesis import strategies as st

from trainwright.jobs import Identity, Preempted, StepFailed, Submission, submit_or_adopt
from trainwright.jobs.diagnosis.causes import Deletions, deletions_in, failures_of, ordered, with_failed_probes
from trainwright.jobs.diagnosis.failure_class import failure_of
from trainwright.jobs.logs.log_excerpt import narrow_tail
from trainwright.jobs.state.pod_history import PodHistory

NOON = "2026-01-01T12:00:{:02}Z"


def state(code: int | None, at: int = 0, reason: str = "Error") -> dict[str, Any]:
    if code is None:
        return {"running": {"startedAt": NOON.format(0)}}
    return terminated(code, reason, NOON.format(at))


def node_pod(
    index: int,
    now: dict[str, Any],
    *,
    last: dict[str, Any] | None = None,
    restarts: int = 0,
    deleted: int | None = None,
    disrupted: int | None = None,
    attempt: int = 0,
    born: int = 0,
) -> dict[str, Any]:
    """`deleted` is the second at which the deletion was requested, with a grace of 5 s."""
    labels = {
        "jobset.sigs.k8s.io/replicatedjob-name": "node",
        "jobset.sigs.k8s.io/restart-attempt": str(attempt),
        "batch.kubernetes.io/job-completion-index": str(index),
    }
    metadata: dict[str, Any] = {"uid": f"{index}-{attempt}-{born}", "creationTimestamp": NOON.format(born)}
    if deleted is not None:
        metadata |= {"deletionTimestamp": NOON.format(deleted + 5), "deletionGracePeriodSeconds": 5}
    conditions = []
    if disrupted is not None:
        since = NOON.format(disrupted)
        conditions = [
            {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", "lastTransitionTime": since}
        ]
    container = {"name": "node", "restartCount": restarts, "state": now, "lastState": last or {}}
    status = {"conditions": conditions, "containerStatuses": [container]}
    return pod(
        f"j-node-0-{index}-{attempt}{born:02}xx",
        labels=labels,
        container={"name": "node"},
        phase="Failed" if "terminated" in now else "Running",
        metadata=metadata,
        status=status,
    )


def ranked(pods: list[dict[str, Any]], deletions: Deletions) -> list[str]:
    history = PodHistory()
    history.observe(pods)
    return [f"{f.index}{'c' if f.is_consequence else ''}" for f in failures_of(history.pods(), deletions)]


@pytest.mark.parametrize(
    ("pods", "by_job", "failing_since", "expected"),
    [
        # a rank fails, its Job stops the other, which ignores SIGTERM
        ([node_pod(0, state(137, 9), deleted=4), node_pod(1, state(7, 3))], {0}, 4, ["1", "0c"]),
        # somebody deletes a pod, its Job then the other
        ([node_pod(0, state(137, 9), deleted=3), node_pod(1, state(137, 9), deleted=4)], {1}, 4, ["0", "1c"]),
        # the same without rights to read events: the Job was failing only after the first deletion
        ([node_pod(0, state(137, 9), deleted=3), node_pod(1, state(137, 9), deleted=4)], None, 4, ["0", "1c"]),
        # evicted; the peer loses its connection and fails by itself before it is stopped
        ([node_pod(0, state(1, 5)), node_pod(1, state(143, 8), deleted=3, disrupted=3)], set(), 6, ["1", "0"]),
        # it fails in the second in which its deletion is requested
        ([node_pod(0, state(None), deleted=4), node_pod(1, state(7, 4), deleted=4)], {0, 1}, 4, ["1", "0c"]),
        # told to stop, a program exits with a code of its own, some time later
        ([node_pod(0, state(1, 8), deleted=4), node_pod(1, state(7, 3))], {0}, 4, ["1", "0c"]),
        # at the back-off limit, the pod that was restarted too often is stopped as well
        (
            [node_pod(0, state(None), deleted=9), node_pod(1, state(None), last=state(7, 6), restarts=2, deleted=9)],
            {0, 1},
            9,
            ["1", "0c"],
        ),
        (
            [node_pod(0, state(137, 12), deleted=9), node_pod(1, state(137, 12), last=state(7, 6), restarts=2, deleted=9)],
            {0, 1},
            9,
            ["1", "0c"],
        ),
        # a container that failed once and runs again is not the cause of what follows
        ([node_pod(0, state(None), last=state(3, 1), restarts=1), node_pod(1, state(7, 5))], set(), 6, ["1", "0"]),
    ],
)
def test_the_cause_comes_first(
    pods: list[dict[str, Any]], by_job: set[int] | None, failing_since: int, expected: list[str]
) -> None:
    named = [one["metadata"]["name"] for one in pods if by_job and int(one["metadata"]["uid"][0]) in by_job]
    events = None if by_job is None else [{"reason": "SuccessfulDelete", "message": f"Deleted pod: {name}"} for name in named]
    assert ranked(pods, deletions_in(events, NOON.format(failing_since))) == expected


def owned(pod: dict[str, Any], job: str = "job-1") -> dict[str, Any]:
    pod["metadata"]["ownerReferences"] = [{"kind": "Job", "name": "j", "uid": job, "controller": True}]
    return pod


@pytest.mark.parametrize(
    ("deleted", "events", "failing_since", "owners", "said"),
    [
        # its event has not come yet, and that of its peer has
        (4, ["peer"], 4, [], "was deleted at 2026-01-01T12:00:04Z, not by its Job"),
        (4, ["j-node-0-0-000xx"], 4, [], "was stopped by its Job"),
        # a Job deletes its pods a moment before it says that it fails
        (3, ["j-node-0-0-000xx"], 4, [], "was stopped by its Job"),
        (5, ["peer"], 4, [], "was stopped by its Job"),
        (2, ["peer"], 4, [], "was deleted at 2026-01-01T12:00:02Z, not by its Job"),
        # the Job is gone: Trainer has deleted the JobSet at its deadline, or it has been restarted
        (2, [], None, ["job-1"], "was stopped by its Job"),
        # events have expired
        (4, [], 4, [], "was stopped by its Job"),
        (3, [], 4, [], "was deleted at 2026-01-01T12:00:03Z"),
        # nothing is known
        (4, None, 5, [], "was deleted at 2026-01-01T12:00:04Z"),
        (4, [], None, [], "was deleted at 2026-01-01T12:00:04Z"),
    ],
)
def test_who_deleted_a_pod_is_decided_from_event_owner_and_time(
    deleted: int, events: list[str] | None, failing_since: int | None, owners: list[str], said: str
) -> None:
    history = PodHistory()
    history.observe([owned(node_pod(0, state(None), deleted=deleted))])
    told = None if events is None else [{"reason": "SuccessfulDelete", "message": f"Deleted pod: {name}"} for name in events]
    since = "" if failing_since is None else NOON.format(failing_since)
    (failure,) = failures_of(history.pods(), deletions_in(told, since, owners))
    assert failure.describe() == said


def test_a_probe_that_killed_is_the_cause() -> None:
    pods = [node_pod(0, state(None), last=state(143, 30), restarts=1), node_pod(1, state(143, 40))]
    history = PodHistory()
    history.observe(pods)
    name = pods[0]["metadata"]["name"]
    told = [
        event("Pod", name, "Unhealthy", "Liveness probe failed: HTTP probe failed with statuscode: 500", NOON.format(9)),
        event("Pod", name, "Killing", "Container node failed liveness probe, will be restarted", NOON.format(9)),
    ]
    first, second = ordered(with_failed_probes(failures_of(history.pods(), Deletions()), told), Deletions())
    assert first.describe() == (
        "exited 143 (stopped by its node: its liveness probe failed: HTTP probe failed with statuscode: 500)"
    )
    assert second.is_consequence


def test_history_of_a_deleted_pod_is_reported() -> None:
    history = PodHistory()
    history.observe([node_pod(0, state(137, 2, "OOMKilled"), restarts=0)])
    history.observe([node_pod(0, state(None), last=state(137, 2, "OOMKilled"), restarts=1)])
    history.observe([node_pod(0, state(143, 9), last=state(137, 7, "OOMKilled"), restarts=2, deleted=8)])
    history.observe([])
    (failure,) = failures_of(history.pods(), Deletions(frozenset({"j-node-0-0-000xx"}), NOON.format(8)))
    assert failure.out_of_memory
    assert failure.is_gone
    assert failure.describe() == "exited 137 (out of memory); it was restarted 1 time before (exited 137, OOMKilled)"


PODS = st.builds(
    node_pod,
    st.integers(0, 5),
    st.sampled_from([state(None), state(0, 3), state(1, 3), state(137, 9)]),
    last=st.sampled_from([None, state(3, 1)]),
    restarts=st.integers(0, 2),
    deleted=st.sampled_from([None, 2, 8]),
    disrupted=st.sampled_from([None, 2]),
    attempt=st.integers(0, 2),
    born=st.integers(0, 3),
)


@pytest.mark.medium
@given(st.lists(st.lists(PODS, max_size=6, unique_by=lambda one: one["metadata"]["uid"]), max_size=6))
def test_property_a_history_survives_its_transfer_and_stays_small(looks: list[list[dict[str, Any]]]) -> None:
    history = PodHistory()
    for pods in looks:
        history.observe(pods)
    sent = history.as_dict(max_pods=4, excerpt=narrow_tail)
    received = PodHistory.from_dict(json.loads(json.dumps(sent)))
    wanted = [seen for seen in history.pods() if seen.is_of_interest][:4]
    assert [(seen.pod, seen.failed_runs, seen.deletion_requested) for seen in received.pods()] == [
        (seen.pod, seen.failed_runs, seen.deletion_requested) for seen in wanted
    ]
    for seen in history.pods():
        assert not seen.is_gone or seen.is_of_interest
    assert len(json.dumps(sent)) < 16_000


def test_a_pod_failure_policy_tells_of_an_eviction_that_nobody_saw(cluster: Any, set_status: Any, add_pod: Any) -> None:
    trainjob = submit_or_adopt(Submission(cluster, program_request(), Identity("o", "r", "s"), "default")).trainjob
    trainjob = set_status(
        trainjob, "Failed", jobsStatus=[{"name": "node", "ready": 0, "succeeded": 0, "failed": 1, "active": 0, "suspended": 0}]
    )
    name = trainjob["metadata"]["name"]
    peer = container_status(state(143, 9))
    add_pod(trainjob, 1, phase="Failed", containerStatuses=[peer])
    assert isinstance(failure_of(cluster, trainjob), StepFailed)
    message = f"Pod default/{name}-node-0-0-bcdfg has condition DisruptionTarget matching FailJob rule at index 0"
    cluster.create(event("Job", f"{name}-node-0", "PodFailurePolicy", message, type="Warning"))
    error = failure_of(cluster, trainjob)
    assert isinstance(error, Preempted)
    assert f"pod {name}-node-0-0-bcdfg (step node) was disrupted" in str(error)
