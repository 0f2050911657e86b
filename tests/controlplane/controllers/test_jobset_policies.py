"""The policies of JobSets, as tables: pure functions over objects."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from trainwright.controlplane.controllers.jobset.children import counters, sorted_children
from trainwright.controlplane.controllers.jobset.construct import child_jobs
from trainwright.controlplane.controllers.jobset.depends_on import dependencies_met
from trainwright.controlplane.controllers.jobset.failure_policy import verdict
from trainwright.controlplane.controllers.jobset.success_policy import has_succeeded

NAME, ATTEMPT = "jobset.sigs.k8s.io/replicatedjob-name", "jobset.sigs.k8s.io/restart-attempt"


def job(
    replicated: str, index: int = 0, condition: str = "", *, attempt: int = 0, reason: str = "", at: str = "", **status: Any
) -> dict[str, Any]:
    conditions = [{"type": condition, "status": "True", "reason": reason, "lastTransitionTime": at}] if condition else []
    return {
        "metadata": {"name": f"js-{replicated}-{index}", "labels": {NAME: replicated, ATTEMPT: str(attempt)}},
        "spec": {"parallelism": 2, "completions": 2},
        "status": {"conditions": conditions, **status},
    }


def jobset(*replicated: tuple[str, int], **spec: Any) -> dict[str, Any]:
    jobs = [{"name": name, "replicas": count, "template": {"spec": {"template": {"spec": {}}}}} for name, count in replicated]
    return {
        "metadata": {"name": "js", "namespace": "ns", "uid": "u"},
        "apiVersion": "v",
        "kind": "JobSet",
        "spec": {"replicatedJobs": jobs, **spec},
    }


@pytest.mark.parametrize(
    ("policy", "done", "succeeded"),
    [
        (None, ["a-0", "b-0", "b-1"], True),
        (None, ["a-0", "b-0"], False),
        ({"operator": "Any"}, ["b-1"], True),
        ({"operator": "Any", "targetReplicatedJobs": ["a"]}, ["b-0", "b-1"], False),
        ({"operator": "All", "targetReplicatedJobs": ["b"]}, ["b-0", "b-1"], True),
        ({"operator": "All", "targetReplicatedJobs": ["a"]}, ["b-0"], False),
        (None, [], False),
    ],
)
def test_when_a_jobset_succeeds(policy: dict[str, Any] | None, done: list[str], succeeded: bool) -> None:
    jobs = [job(name.partition("-")[0], int(name.partition("-")[2]), "Complete") for name in done]
    spec = {"successPolicy": policy} if policy else {}
    assert has_succeeded(jobset(("a", 1), ("b", 2), **spec), sorted_children(jobs, 0)) is succeeded


@pytest.mark.parametrize(
    ("policy", "used", "reason", "counted"),
    [
        (None, 0, "FailedJobs", True),
        ({}, 0, "ReachedMaxRestarts", True),
        ({"maxRestarts": 2}, 1, "DefaultFailurePolicy", True),
        ({"maxRestarts": 2}, 2, "ReachedMaxRestarts", True),
        ({"maxRestarts": 9, "rules": [{"name": "r", "action": "FailJobSet"}]}, 0, "FailJobSetFailurePolicyAction", True),
        ({"rules": [{"name": "r", "action": "RestartJobSetAndIgnoreMaxRestarts"}]}, 5, "FailurePolicy_r", False),
        (
            {"maxRestarts": 1, "rules": [{"name": "r", "action": "FailJobSet", "onJobFailureReasons": ["DeadlineExceeded"]}]},
            0,
            "DefaultFailurePolicy",
            True,
        ),
        (
            {"maxRestarts": 1, "rules": [{"name": "r", "action": "FailJobSet", "targetReplicatedJobs": ["a"]}]},
            0,
            "FailJobSetFailurePolicyAction",
            True,
        ),
    ],
)
def test_what_a_failure_leads_to(policy: dict[str, Any] | None, used: int, reason: str, counted: bool) -> None:
    spec = {"failurePolicy": policy} if policy is not None else {}
    whole = jobset(("a", 1), **spec) | {"status": {"restartsCountTowardsMax": used}}
    decided = verdict(whole, [job("a", 0, "Failed", reason="BackoffLimitExceeded")])
    assert (decided.reason, decided.counted) == (reason, counted)
    assert "js-a-0" in decided.message


def test_the_earliest_failure_is_named_and_rules_come_before_time() -> None:
    late, early = job("a", 0, "Failed", at="2026-01-01T00:00:02Z"), job("b", 0, "Failed", at="2026-01-01T00:00:01Z")
    assert "js-b-0" in verdict(jobset(("a", 1), ("b", 1)), [late, early]).message
    rules = [{"name": "first", "action": "FailJobSet", "targetReplicatedJobs": ["a"]}, {"name": "second", "action": "FailJobSet"}]
    assert "js-a-0" in verdict(jobset(("a", 1), ("b", 1), failurePolicy={"rules": rules}), [late, early]).message


@pytest.mark.parametrize(
    ("status", "jobs", "met"),
    [
        ("Complete", [job("a", 0, "Complete")], False),
        ("Complete", [job("a", 0, "Complete"), job("a", 1, "Complete")], True),
        ("Ready", [job("a", 0, ready=2, active=2), job("a", 1, ready=1, active=2)], False),
        ("Ready", [job("a", 0, ready=1, succeeded=1, active=1), job("a", 1, "Failed")], True),
        ("Complete", [job("a", 0, "Complete", attempt=0), job("a", 1, "Complete", attempt=1)], False),
    ],
)
def test_when_a_dependency_is_met(status: str, jobs: list[dict[str, Any]], met: bool) -> None:
    whole = jobset(("a", 2), ("b", 1))
    seen = counters(whole, sorted_children(jobs, 1 if any(j["metadata"]["labels"][ATTEMPT] == "1" for j in jobs) else 0))
    dependent = {"name": "b", "dependsOn": [{"name": "a", "status": status}]}
    assert dependencies_met(dependent, whole, seen) is met


def test_counters_and_buckets() -> None:
    jobs = [job("a", 0, ready=2, active=2), job("a", 1, attempt=0), job("b", 0, "Failed", attempt=1)]
    children = sorted_children([*jobs, job("b", 1, attempt=1)], 1)
    assert [len(bucket) for bucket in (children.previous, children.active, children.successful, children.failed)] == [2, 1, 0, 1]
    assert counters(jobset(("a", 2), ("b", 2)), children)[0]["name"] == "b"


def test_children_know_their_place() -> None:
    whole = jobset(("a", 1), ("b", 2)) | {"status": {"restarts": 3}}
    second = child_jobs(whole, whole["spec"]["replicatedJobs"][1])[1]
    labels = second["metadata"]["labels"]
    assert second["metadata"]["name"] == "js-b-1"
    assert labels == second["spec"]["template"]["metadata"]["annotations"]
    expected = {
        "job-index": "1",
        "job-global-index": "2",
        "global-replicas": "3",
        "restart-attempt": "3",
        "group-name": "default",
    }
    assert {key: labels[f"jobset.sigs.k8s.io/{key}"] for key in expected} == expected
    assert labels["jobset.sigs.k8s.io/job-key"] == hashlib.sha1(b"ns/js-b-1").hexdigest()
    assert second["spec"]["template"]["spec"]["subdomain"] == "js"
