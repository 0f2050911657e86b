"""The policies of JobSets, as tables: pure functions over objects."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from factories import job, jobset, replicated_job

from trainwright.api.errors import Forbidden
from trainwright.controlplane.controllers.controller import TerminalError
from trainwright.controlplane.controllers.jobset.children import classify_children, counters
from trainwright.controlplane.controllers.jobset.construct import child_jobs
from trainwright.controlplane.controllers.jobset.depends_on import dependencies_met
from trainwright.controlplane.controllers.jobset.failure_policy import failure_action
from trainwright.controlplane.controllers.jobset.placement import place_pod
from trainwright.controlplane.controllers.jobset.startup_policy import has_started
from trainwright.controlplane.controllers.jobset.success_policy import has_succeeded
from trainwright.controlplane.controllers.jobset.suspension import resume_patch
from trainwright.controlplane.controllers.jobset.volume_claims import volume_claims

INDEX, JOB_ATTEMPT = "jobset.sigs.k8s.io/job-index", "jobset.sigs.k8s.io/job-restart-attempt"
NAME, ATTEMPT = "jobset.sigs.k8s.io/replicatedjob-name", "jobset.sigs.k8s.io/restart-attempt"


def child_job(
    replicated: str,
    index: int = 0,
    condition: str = "",
    *,
    attempt: int | str = 0,
    reason: str = "",
    at: str = "",
    more: dict[str, str] | None = None,
    **status: Any,
) -> dict[str, Any]:
    conditions = [{"type": condition, "status": "True", "reason": reason, "lastTransitionTime": at}] if condition else []
    labels = {NAME: replicated, ATTEMPT: str(attempt), INDEX: str(index), **(more or {})}
    status = {"conditions": conditions, **status}
    return job(f"js-{replicated}-{index}", labels=labels, status=status, parallelism=2, completions=2)


def jobset_of(*replicated: tuple[str, int], **spec: Any) -> dict[str, Any]:
    jobs = [replicated_job(name, replicas=count) for name, count in replicated]
    return jobset("js", *jobs, namespace="ns", metadata={"uid": "u"}, **spec)


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
    jobs = [child_job(name.partition("-")[0], int(name.partition("-")[2]), "Complete") for name in done]
    spec = {"successPolicy": policy} if policy else {}
    assert has_succeeded(jobset_of(("a", 1), ("b", 2), **spec), classify_children(jobs, {})) is succeeded


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
def test_failure_action_follows_the_failure_policy(policy: dict[str, Any] | None, used: int, reason: str, counted: bool) -> None:
    spec = {"failurePolicy": policy} if policy is not None else {}
    whole = jobset_of(("a", 1), **spec) | {"status": {"restartsCountTowardsMax": used}}
    decided = failure_action(whole, [child_job("a", 0, "Failed", reason="BackoffLimitExceeded")])
    assert (decided.rule or decided.reason, decided.counted) == (reason, counted)
    assert "js-a-0" in decided.message


def test_the_earliest_failure_is_named_and_rules_come_before_time() -> None:
    late, early = child_job("a", 0, "Failed", at="2026-01-01T00:00:02Z"), child_job("b", 0, "Failed", at="2026-01-01T00:00:01Z")
    assert "js-b-0" in failure_action(jobset_of(("a", 1), ("b", 1)), [late, early]).message
    rules = [{"name": "first", "action": "FailJobSet", "targetReplicatedJobs": ["a"]}, {"name": "second", "action": "FailJobSet"}]
    assert "js-a-0" in failure_action(jobset_of(("a", 1), ("b", 1), failurePolicy={"rules": rules}), [late, early]).message


@pytest.mark.parametrize(
    ("status", "jobs", "met"),
    [
        ("Complete", [child_job("a", 0, "Complete")], False),
        ("Complete", [child_job("a", 0, "Complete"), child_job("a", 1, "Complete")], True),
        ("Ready", [child_job("a", 0, ready=2, active=2), child_job("a", 1, ready=1, active=2)], False),
        ("Ready", [child_job("a", 0, ready=1, succeeded=1, active=1), child_job("a", 1, "Failed")], True),
        ("Complete", [child_job("a", 0, "Complete", attempt=0), child_job("a", 1, "Complete", attempt=1)], False),
    ],
)
def test_when_a_dependency_is_met(status: str, jobs: list[dict[str, Any]], met: bool) -> None:
    whole = jobset_of(("a", 2), ("b", 1))
    restarts = max(int(entry["metadata"]["labels"][ATTEMPT]) for entry in jobs)
    seen = counters(whole, classify_children(jobs, {"restarts": restarts}))
    dependent = {"name": "b", "dependsOn": [{"name": "a", "status": status}]}
    assert dependencies_met(dependent, whole, seen) is met


def test_counters_and_buckets() -> None:
    jobs = [child_job("a", 0, ready=2, active=2), child_job("a", 1, attempt=0), child_job("b", 0, "Failed", attempt=1)]
    children = classify_children([*jobs, child_job("b", 1, attempt=1)], {"restarts": 1})
    assert [len(bucket) for bucket in (children.previous, children.active, children.successful, children.failed)] == [2, 1, 0, 1]
    assert counters(jobset_of(("a", 2), ("b", 2)), children)[0]["name"] == "b"


def test_children_know_their_place() -> None:
    whole = jobset_of(("a", 1), ("b", 2)) | {"status": {"restarts": 3}}
    second = list(child_jobs(whole, whole["spec"]["replicatedJobs"][1]))[1]
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


def test_a_job_whose_attempt_cannot_be_read_stops_the_pass() -> None:
    with pytest.raises(TerminalError, match="js-a-0"):
        classify_children([child_job("a", attempt="broken")], {})


@pytest.mark.parametrize(("pattern", "outcome"), [("limit$", "fail"), ("other", "restart"), ("(", "restart")])
def test_message_patterns_are_searched_and_bad_ones_match_nothing(pattern: str, outcome: str) -> None:
    policy = {"maxRestarts": 1, "rules": [{"name": "r", "action": "FailJobSet", "onJobFailureMessagePatterns": [pattern]}]}
    failed = child_job("a", 0, "Failed")
    failed["status"]["conditions"][0]["message"] = "Job has reached the specified backoff limit"
    assert failure_action(jobset_of(("a", 1), failurePolicy=policy), [failed]).outcome == outcome


@pytest.mark.parametrize(
    ("seen", "started"), [({"ready": 1, "failed": 1}, True), ({"ready": 1, "active": 2}, False), ({"succeeded": 2}, True)]
)
def test_when_a_replicated_job_has_started(seen: dict[str, int], started: bool) -> None:
    assert has_started({"name": "a", "replicas": 2}, [{"name": "a", **seen}]) is started


def test_resuming_adds_and_never_removes() -> None:
    present = {"spec": {"template": {"spec": {"tolerations": [{"key": "a"}]}}}}
    template = {"metadata": {"labels": {"x": "1"}}, "spec": {"nodeSelector": {"pool": "p"}, "tolerations": [{"key": "b"}]}}
    assert resume_patch(present, {"template": {"spec": {"template": template}}}) == {
        "suspend": False,
        "template": {
            "metadata": {"labels": {"x": "1"}},
            "spec": {"nodeSelector": {"pool": "p"}, "tolerations": [{"key": "a"}, {"key": "b"}]},
        },
    }
    assert resume_patch(present, {"template": {"spec": {"template": {}}}}) == {"suspend": False}


def test_pods_wait_for_the_node_of_their_leader() -> None:
    whole = jobset_of(("a", 1))
    whole["metadata"]["annotations"] = {"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"}
    template = next(child_jobs(whole, whole["spec"]["replicatedJobs"][0]))["spec"]["template"]
    index = "batch.kubernetes.io/job-completion-index"
    leader = {
        "metadata": {**template["metadata"], "annotations": {**template["metadata"]["annotations"], index: "0"}},
        "spec": {},
    }
    place_pod(leader, lambda _pod, _topology: None)
    terms = leader["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert [term["topologyKey"] for term in terms] == ["rack"]
    follower = {
        "metadata": {**template["metadata"], "annotations": {**template["metadata"]["annotations"], index: "1"}},
        "spec": {},
    }
    with pytest.raises(Forbidden, match="follower pod node selector not set"):
        place_pod(follower, lambda _pod, _topology: None)
    place_pod(follower, lambda _pod, _topology: "r1")
    assert follower["spec"]["nodeSelector"] == {"rack": "r1"}


def test_only_claims_that_go_with_the_set_are_owned_by_it() -> None:
    policies = [
        {"templates": [{"metadata": {"name": "data"}, "spec": {}}]},
        {"templates": [{"metadata": {"name": "keep"}, "spec": {}}], "retentionPolicy": {"whenDeleted": "Retain"}},
    ]
    claims = {claim["metadata"]["name"]: claim for claim in volume_claims(jobset_of(("a", 1), volumeClaimPolicies=policies))}
    assert [name for name, claim in claims.items() if "ownerReferences" in claim["metadata"]] == ["data-js"]
    assert sorted(claims) == ["data-js", "keep-js"]
