"""The policies of Jobs, as tables: pure functions over a Job and its pods."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from factories import pod
from hypothesis import given
from hypothesis import strategies as st

from trainwright.api.integers import indexes_text, parse_indexes
from trainwright.controlplane.controllers.job import pod_failure_policy
from trainwright.controlplane.controllers.job.finish import find_finish_reason
from trainwright.controlplane.controllers.job.reconcile_state import ReconcileState
from trainwright.controlplane.controllers.job.success_policy import met_success_rule

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def tracked_pod(phase: str, index: int = 0, code: int = 1) -> dict[str, Any]:
    container = {"name": "main", "restartCount": 0, "state": {"terminated": {"exitCode": code, "finishedAt": _ago(60)}}}
    annotations = {"batch.kubernetes.io/job-completion-index": str(index)}
    metadata = {"uid": str(index), "annotations": annotations, "finalizers": ["batch.kubernetes.io/job-tracking"]}
    return pod(f"work-{index}", namespace="ns", phase=phase, metadata=metadata, status={"containerStatuses": [container]})


def state(pods: list[dict[str, Any]], **spec: Any) -> ReconcileState:
    whole = {"parallelism": 2, "completions": 2, "completionMode": "Indexed", **spec}
    whole["template"] = {"spec": {"restartPolicy": "Never", "containers": []}}
    return ReconcileState({"metadata": {"name": "work"}, "spec": whole, "status": {"startTime": _ago(10)}}, pods, NOW)


def _ago(seconds: int) -> str:
    return datetime.fromtimestamp(NOW.timestamp() - seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@given(st.sets(st.integers(0, 60)))
def test_property_index_texts_can_be_read_back(indexes: set[int]) -> None:
    assert parse_indexes(indexes_text(indexes), 61) == indexes


@pytest.mark.parametrize(
    ("text", "indexes"),
    [
        ("0-999999999999999", {0, 1, 2}),
        ("1,2-9,x,-1,4-", {1, 2}),
        ("9" * 5000, set()),
        ("²", set()),
        ("7-3", set()),
        (None, set()),
    ],
)
def test_index_texts_that_no_controller_wrote(text: str | None, indexes: set[int]) -> None:
    assert parse_indexes(text, 3) == indexes


FAIL_ON_42 = {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}]}


INDEX_0 = {"rules": [{"succeededIndexes": "0"}]}


@pytest.mark.parametrize(
    ("pods", "spec", "reason"),
    [
        ([tracked_pod("Failed", code=42)], {"podFailurePolicy": FAIL_ON_42, "backoffLimit": 0}, "PodFailurePolicy"),
        ([tracked_pod("Failed")], {"podFailurePolicy": FAIL_ON_42, "backoffLimit": 0}, "BackoffLimitExceeded"),
        ([], {"activeDeadlineSeconds": 10}, "DeadlineExceeded"),
        ([], {"activeDeadlineSeconds": 10, "suspend": True}, None),
        ([tracked_pod("Failed"), tracked_pod("Succeeded", 1)], {"backoffLimitPerIndex": 0}, "FailedIndexes"),
        ([tracked_pod("Failed")], {"backoffLimitPerIndex": 0, "maxFailedIndexes": 0}, "MaxFailedIndexesExceeded"),
        (
            [tracked_pod("Succeeded"), tracked_pod("Failed", 1)],
            {"successPolicy": INDEX_0, "backoffLimit": 0},
            "BackoffLimitExceeded",
        ),
        ([tracked_pod("Succeeded")], {"successPolicy": INDEX_0}, "SuccessPolicy"),
    ],
)
def test_find_finish_reason_follows_the_policies(pods: list[dict[str, Any]], spec: dict[str, Any], reason: str | None) -> None:
    decided = find_finish_reason(state(pods, **spec))
    assert (decided.reason if decided else None) == reason


@pytest.mark.parametrize(
    ("exits", "code", "action"),
    [
        ({"operator": "NotIn", "values": [1]}, 2, "Ignore"),
        ({"operator": "NotIn", "values": [1]}, 1, None),
        ({"operator": "NotIn", "values": [9]}, 0, None),
        ({"containerName": "other", "operator": "In", "values": [1]}, 1, None),
    ],
)
def test_rules_of_pod_failures(exits: dict[str, Any], code: int, action: str | None) -> None:
    rules = {"rules": [{"action": "Ignore", "onExitCodes": exits}]}
    match = pod_failure_policy.matching_rule({"podFailurePolicy": rules}, tracked_pod("Failed", code=code))
    assert (match.action if match else None) == action


@pytest.mark.parametrize(
    ("rules", "completed", "met"),
    [
        ([{"succeededCount": 2}], {0}, None),
        ([{"succeededIndexes": "0,2-3"}], {0, 2}, None),
        ([{"succeededIndexes": "0,2-3", "succeededCount": 2}], {0, 2}, 0),
        ([{"succeededIndexes": "9"}, {"succeededCount": 1}], {3}, 1),
        ([{"succeededCount": 0}], set(), None),
    ],
)
def test_rules_of_success(rules: list[dict[str, Any]], completed: set[int], met: int | None) -> None:
    assert met_success_rule({"completions": 10, "successPolicy": {"rules": rules}}, completed) == met


@pytest.mark.parametrize(("seen", "is_counted"), [([{"type": "DisruptionTarget", "status": "True"}], False), ([], True)])
def test_evictions_do_not_count_where_a_rule_ignores_them(seen: list[dict[str, str]], is_counted: bool) -> None:
    ignored = {"podFailurePolicy": {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]}}
    assert pod_failure_policy.counts(ignored, pod("work-0", phase="Failed", status={"conditions": seen})) is is_counted
