"""Which causes of waiting end a wait, and after how long: words of real clusters, and recordings of them."""

from __future__ import annotations

import pytest

from trainwright.jobs.diagnosis.stuck_causes import refusal_of
from trainwright.jobs.submit.cluster_fit import QueueNotFound, check_known_queue

CREATING = 'Error creating: pods "job-node-0-0-x" is forbidden: '


@pytest.mark.parametrize(
    ("message", "seconds", "words"),
    [
        (
            'violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false (container "node" must set '
            "securityContext.allowPrivilegeEscalation=false)",
            0.0,
            "Pod Security level restricted: set the securityContext",
        ),
        ("ValidatingAdmissionPolicy 'team' with binding 'all' denied request: the label team is missing", 600.0, "policy"),
        ('admission webhook "validate.example.com" denied the request: no', 600.0, "policy"),
        ("maximum memory usage per Container is 1Gi, but limit is 4Gi", 600.0, "policy"),
        ("exceeded quota: q, requested: pods=1, used: pods=0, limited: pods=0", 600.0, "smaller than one pod"),
        ("exceeded quota: q, requested: cpu=2,memory=8Gi, used: cpu=0,memory=0, limited: cpu=4,memory=4Gi", 600.0, "smaller"),
        ("exceeded quota: q, requested: pods=1, used: pods=4, limited: pods=4", None, ""),
        ("exceeded quota: q, requested: cpu=500m, used: cpu=3900m, limited: cpu=4", None, ""),
        ("exceeded quota: q, requested: x, used: y, limited: z", None, ""),
        ("unable to create new content in namespace a because it is being terminated", None, ""),
    ],
)
def test_refusals_of_pods(message: str, seconds: float | None, words: str) -> None:
    refusal = refusal_of(CREATING + message)
    assert (refusal.seconds if refusal is not None else None) == seconds
    assert refusal is None or words in refusal.advice


def test_long_messages_are_read_in_linear_time() -> None:
    """Backtracking over such a message takes hours."""
    assert refusal_of("exceeded quota: a, requested: " * 20_000 + ", used: " * 20_000) is None


def test_submission_refuses_a_queue_that_nobody_serves() -> None:
    check_known_queue(["team"], "team", "default")
    with pytest.raises(QueueNotFound, match="queue_name: the namespace default has no LocalQueue 'tema': did you mean team"):
        check_known_queue(["team"], "tema", "default")
    with pytest.raises(QueueNotFound, match="queue_name: 'team': Kueue is not installed, so nothing starts the job"):
        check_known_queue(None, "team", "default")
