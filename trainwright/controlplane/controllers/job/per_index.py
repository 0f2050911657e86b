"""Backoff limits per index. The number of failures of an index is passed in an annotation from a pod to its replacement."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from trainwright.api.integers import parse_count, parse_indexes
from trainwright.api.objects import Obj, annotations_of
from trainwright.controlplane.controllers.job import pod_failure_policy
from trainwright.controlplane.controllers.job.pods import index_of, is_tracked

FAILURES = "batch.kubernetes.io/job-index-failure-count"
IGNORED_FAILURES = "batch.kubernetes.io/job-index-ignored-failure-count"


def failed_indexes(job: Obj, pods: list[Obj], has_failed: Callable[[Obj], bool]) -> set[int]:
    """Return the permanently failed indexes: those in the status, and those of pods that failed since."""
    known, spec = parse_indexes((job.get("status") or {}).get("failedIndexes"), int(job["spec"]["completions"])), job["spec"]
    for pod in pods:
        index = index_of(pod)
        if index is None or index >= int(spec["completions"]) or not is_tracked(pod) or not has_failed(pod):
            continue  # not of a completion of the Job, counted before, or not failed
        match = pod_failure_policy.matching_rule(spec, pod)
        action = match.action if match is not None else ""
        if action == "FailIndex" or (action != "Ignore" and _count(pod, FAILURES) >= int(spec["backoffLimitPerIndex"])):
            known.add(index)
    return known


def last_failures(failed: Iterable[Obj]) -> dict[int, Obj]:
    """Return the failed pod of each index whose counters the replacement continues."""
    last: dict[int, Obj] = {}
    for pod in failed:
        index = index_of(pod)
        assert index is not None
        if index not in last or all_failures(last[index]) <= all_failures(pod):
            last[index] = pod
    return last


def replacement_notes(spec: Obj, replaced: Obj | None) -> dict[str, str]:
    """Return the annotations with the failure counters for the next pod of an index."""
    failures, ignored = (_count(replaced, FAILURES), _count(replaced, IGNORED_FAILURES)) if replaced else (0, 0)
    if replaced is not None:
        if pod_failure_policy.counts(spec, replaced):
            failures += 1
        else:
            ignored += 1
    return {FAILURES: str(failures)} | ({IGNORED_FAILURES: str(ignored)} if ignored else {})


def all_failures(pod: Obj) -> int:
    """Return the failures of the pod's index before it, including ignored ones, since all of them increase the backoff."""
    return _count(pod, FAILURES) + _count(pod, IGNORED_FAILURES)


def _count(pod: Obj, key: str) -> int:
    return parse_count(annotations_of(pod).get(key, "")) or 0
