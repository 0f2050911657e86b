"""The policies of Jobs, as tables: pure functions over a Job and its pods."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from factories import pod
from hypothesis import given
from hypothesis import strategies as st

from trainwright.api.indexes import indexes_text, parse_indexes
from trainwright.controlplane.controllers.job import per_index, pod_failure_policy, tracking
from trainwright.controlplane.controllers.job.backoff import BACKOFF, BackoffRecord
from trainwright.controlplane.controllers.job.finish import find_finish_reason
from trainwright.controlplane.controllers.job.reconcile_state import ReconcileState
from trainwright.controlplane.controllers.job.scaling import indexes_to_create, pods_to_delete
from trainwright.controlplane.controllers.job.success_policy import met_success_rule

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
TRACKING = "batch.kubernetes.io/job-tracking"
INDEX = "batch.kubernetes.io/job-completion-index"


def tracked_pod(phase: str = "Running", index: int | None = None, **given: Any) -> dict[str, Any]:
    """A tracked pod; `exit`, `ended` (seconds ago), `restarts`, `deleting`, `ready`, `failures`, `conditions` say more."""
    state = {"terminated": {"exitCode": given.get("exit", 1), "finishedAt": _ago(given.get("ended", 3600))}}
    container = {"name": "main", "restartCount": given.get("restarts", 0)}
    if phase in ("Succeeded", "Failed"):
        container["state"] = state
    conditions = given.get("conditions") or []
    if given.get("ready"):
        conditions = [*conditions, {"type": "Ready", "status": "True", "lastTransitionTime": _ago(60)}]
    annotations = {} if index is None else {INDEX: str(index)}
    if "failures" in given:
        annotations[per_index.FAILURES] = str(given["failures"])
    name = given.get("name", f"work-{index}")
    metadata = {"uid": name, "annotations": annotations, "finalizers": [TRACKING], "creationTimestamp": _ago(7200)}
    if given.get("deleting"):
        metadata["deletionTimestamp"] = _ago(0)
    status = {"containerStatuses": [container], "conditions": conditions}
    spec = {"nodeName": given["node"]} if "node" in given else {}
    return pod(name, namespace="ns", phase=phase, metadata=metadata, status=status, **spec)


def state(pods: list[dict[str, Any]], status: dict[str, Any] | None = None, policy: str = "Never", **spec: Any) -> ReconcileState:
    whole = {"parallelism": 2, "completions": 2, "completionMode": "Indexed", **spec}
    whole["template"] = {"spec": {"restartPolicy": policy, "containers": []}}
    return ReconcileState({"metadata": {"name": "work"}, "spec": whole, "status": status or {}}, pods, NOW)


def _ago(seconds: int) -> str:
    return datetime.fromtimestamp(NOW.timestamp() - seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@pytest.mark.parametrize(
    ("indexes", "text"),
    [([], ""), ([0], "0"), ([0, 1], "0,1"), ([0, 1, 2], "0-2"), ([0, 2, 3, 4, 9], "0,2-4,9"), ([5, 4, 4], "4,5")],
)
def test_index_texts(indexes: list[int], text: str) -> None:
    assert indexes_text(indexes) == text


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


@pytest.mark.parametrize(
    ("policy", "limit", "failed", "restarts", "has_failed"),
    [
        ("Never", 0, 0, 0, False),
        ("Never", 0, 1, 0, True),
        ("Never", 2, 2, 0, False),
        ("Never", 2, 3, 0, True),
        ("OnFailure", 0, 0, 1, True),
        ("OnFailure", 1, 0, 1, True),
        ("OnFailure", 2, 0, 1, False),
        ("OnFailure", 2, 0, 2, True),
    ],
)
def test_back_off_limits(policy: str, limit: int, failed: int, restarts: int, has_failed: bool) -> None:
    seen = state([tracked_pod(index=0, restarts=restarts)], {"failed": failed}, policy, backoffLimit=limit)
    assert (find_finish_reason(seen) is not None) is has_failed


FAIL_ON_42 = {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}]}
INDEX_0 = {"rules": [{"succeededIndexes": "0"}]}


@pytest.mark.parametrize(
    ("pods", "status", "spec", "reason"),
    [
        ([tracked_pod("Failed", 0, exit=42)], {}, {"podFailurePolicy": FAIL_ON_42, "backoffLimit": 0}, "PodFailurePolicy"),
        ([tracked_pod("Failed", 0, exit=1)], {}, {"podFailurePolicy": FAIL_ON_42, "backoffLimit": 0}, "BackoffLimitExceeded"),
        ([], {"startTime": _ago(10)}, {"activeDeadlineSeconds": 10}, "DeadlineExceeded"),
        ([], {"startTime": _ago(10)}, {"activeDeadlineSeconds": 10, "suspend": True}, None),
        ([tracked_pod(index=0, deleting=True)], {}, {"backoffLimit": 0}, "BackoffLimitExceeded"),
        ([tracked_pod(index=0, deleting=True)], {}, {"backoffLimit": 0, "podReplacementPolicy": "Failed"}, None),
        ([tracked_pod("Failed", 0), tracked_pod("Succeeded", 1)], {}, {"backoffLimitPerIndex": 0}, "FailedIndexes"),
        ([tracked_pod("Failed", 0)], {}, {"backoffLimitPerIndex": 0, "maxFailedIndexes": 0}, "MaxFailedIndexesExceeded"),
        ([tracked_pod("Failed", 0, failures=0)], {}, {"backoffLimitPerIndex": 1, "maxFailedIndexes": 0}, None),
        ([tracked_pod("Succeeded", 0)], {}, {"successPolicy": INDEX_0}, "SuccessPolicy"),
        (
            [tracked_pod("Succeeded", 0), tracked_pod("Failed", 1)],
            {},
            {"successPolicy": INDEX_0, "backoffLimit": 0},
            "BackoffLimitExceeded",
        ),
        ([tracked_pod("Failed", 5)], {}, {"backoffLimit": 0}, None),
    ],
)
def test_find_finish_reason_follows_the_policies(
    pods: list[dict[str, Any]], status: dict[str, Any], spec: dict[str, Any], reason: str | None
) -> None:
    decided = find_finish_reason(state(pods, status, **spec))
    assert (decided.reason if decided else None) == reason


@pytest.mark.parametrize(
    ("rule", "ended", "action"),
    [
        ({"action": "Ignore", "onExitCodes": {"operator": "NotIn", "values": [1]}}, tracked_pod("Failed", exit=2), "Ignore"),
        ({"action": "Ignore", "onExitCodes": {"operator": "NotIn", "values": [1]}}, tracked_pod("Failed", exit=1), None),
        (
            {"action": "Count", "onExitCodes": {"containerName": "other", "operator": "In", "values": [1]}},
            tracked_pod("Failed", exit=1),
            None,
        ),
        ({"action": "Count", "onExitCodes": {"operator": "NotIn", "values": [9]}}, tracked_pod("Failed", exit=0), None),
        (
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]},
            tracked_pod("Failed", conditions=[{"type": "DisruptionTarget", "status": "True"}]),
            "Ignore",
        ),
    ],
)
def test_rules_of_pod_failures(rule: dict[str, Any], ended: dict[str, Any], action: str | None) -> None:
    match = pod_failure_policy.matching_rule({"podFailurePolicy": {"rules": [rule]}}, ended)
    assert (match.action if match else None) == action


@pytest.mark.parametrize(
    ("rules", "completed", "met"),
    [
        ([{"succeededCount": 2}], {0}, None),
        ([{"succeededCount": 2}], {0, 7}, 0),
        ([{"succeededIndexes": "0,2-3"}], {0, 2}, None),
        ([{"succeededIndexes": "0,2-3", "succeededCount": 2}], {0, 2}, 0),
        ([{"succeededIndexes": "9"}, {"succeededCount": 1}], {3}, 1),
        ([{"succeededCount": 0}], set(), None),
    ],
)
def test_rules_of_success(rules: list[dict[str, Any]], completed: set[int], met: int | None) -> None:
    assert met_success_rule({"completions": 10, "successPolicy": {"rules": rules}}, completed) == met


def test_back_off_doubles_up_to_ten_minutes() -> None:
    assert [BACKOFF.seconds(n) for n in (0, 1, 2, 3, 7, 8, 50)] == [0, 10, 20, 40, 600, 600, 600]


def test_back_off_counts_failures_since_the_last_success() -> None:
    twice = BackoffRecord().updated([], [tracked_pod("Failed", ended=8), tracked_pod("Failed", ended=3)])
    assert twice.seconds_left(NOW) == pytest.approx(17)
    assert twice.updated([tracked_pod("Succeeded", ended=1)], []).seconds_left(NOW) == 0
    assert twice.updated([tracked_pod("Succeeded", ended=2)], [tracked_pod("Failed", ended=1)]).seconds_left(
        NOW
    ) == pytest.approx(9)


@pytest.mark.parametrize(
    ("pods", "spec", "indexes"),
    [
        ([], {}, [0, 1]),
        ([tracked_pod(index=0)], {}, [1]),
        ([tracked_pod("Succeeded", 0)], {"completions": 3}, [1, 2]),
        ([tracked_pod(index=0, deleting=True)], {}, [0, 1]),
        ([tracked_pod(index=0, deleting=True)], {"podReplacementPolicy": "Failed"}, [1]),
        ([tracked_pod("Failed", 0)], {"completions": 3, "backoffLimitPerIndex": 0}, [1, 2]),
        ([tracked_pod("Failed", 0, ended=1)], {"completions": 3, "backoffLimitPerIndex": 1}, [1]),
        ([], {"suspend": True}, []),
        ([], {"completionMode": "NonIndexed", "completions": None}, [None, None]),
        ([tracked_pod("Succeeded", name="a")], {"completionMode": "NonIndexed", "completions": None}, []),
    ],
)
def test_which_pods_are_missing(pods: list[dict[str, Any]], spec: dict[str, Any], indexes: list[int | None]) -> None:
    assert indexes_to_create(state(pods, **spec), BackoffRecord())[0] == indexes


def test_a_failed_index_does_not_wait_for_another() -> None:
    seen = state([tracked_pod("Failed", 0, ended=4), tracked_pod(index=1)], completions=3, backoffLimitPerIndex=2)
    assert indexes_to_create(seen, BackoffRecord()) == ([], pytest.approx(6))
    assert list(seen.awaiting_replacement) == [0]
    assert tracking.pods_to_release(seen, None) == []


@pytest.mark.parametrize(
    ("pods", "parallelism", "removed"),
    [
        ([tracked_pod(index=0, ready=True), tracked_pod(index=1)], 1, ["work-1"]),
        ([tracked_pod(index=0), tracked_pod("Pending", 1)], 1, ["work-1"]),
        ([tracked_pod("Pending", 0), tracked_pod("Pending", 1, node="n")], 1, ["work-0"]),
        ([tracked_pod(index=0, name="old", ready=True), tracked_pod(index=0, name="twin")], 2, ["twin"]),
        ([tracked_pod(index=7, ready=True)], 2, ["work-7"]),
    ],
)
def test_which_pods_are_too_many(pods: list[dict[str, Any]], parallelism: int, removed: list[str]) -> None:
    assert [entry["metadata"]["name"] for entry in pods_to_delete(state(pods, parallelism=parallelism))] == removed


def test_replacements_carry_the_failures_of_their_index() -> None:
    ignoring = {"podFailurePolicy": {"rules": [{"action": "Ignore", "onExitCodes": {"operator": "In", "values": [9]}}]}}
    assert per_index.replacement_notes({}, None) == {per_index.FAILURES: "0"}
    assert per_index.replacement_notes({}, tracked_pod("Failed", 0, failures=1)) == {per_index.FAILURES: "2"}
    ignored = per_index.replacement_notes(ignoring, tracked_pod("Failed", 0, failures=1, exit=9))
    assert ignored == {per_index.FAILURES: "1", per_index.IGNORED_FAILURES: "1"}


def test_running_pods_count_as_failed_only_if_the_job_fails() -> None:
    for spec, failed in (({"backoffLimit": 0}, 2), ({"successPolicy": INDEX_0}, 0)):
        seen = state([tracked_pod("Failed" if failed else "Succeeded", 0), tracked_pod(index=1)], **spec)
        finish = find_finish_reason(seen)
        tracking.record_uncounted(seen, tracking.pods_to_release(seen, finish), finish)
        tracking.count_released(seen, set())
        assert seen.status.get("failed", 0) == failed
