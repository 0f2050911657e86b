"""The state of one reconcile of a Job: its pods, which of them have finished and are not counted yet, and the counts.

The policies are functions of this state; the reconciler acts on their results.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from trainwright.api.integers import parse_indexes
from trainwright.api.objects import Obj, is_deleting, uid_of
from trainwright.controlplane.controllers.job import per_index, pod_failure_policy
from trainwright.controlplane.controllers.job.pods import index_of, is_active, is_tracked, phase_of


class ReconcileState:
    """`status` is the new status. Pods that this reconcile creates or deletes appear only in the next one."""

    def __init__(self, job: Obj, pods: list[Obj], now: datetime):
        self.job, self.spec, self.now = job, job["spec"], now
        self.status: Obj = job.setdefault("status", {})
        self.pods = sorted(pods, key=lambda pod: -1 if (index := index_of(pod)) is None else index)
        self.active = [pod for pod in self.pods if is_active(pod)]
        self.is_indexed = self.spec.get("completionMode") == "Indexed"
        self.is_suspended = bool(self.spec.get("suspend"))
        uncounted = self.status.get("uncountedTerminatedPods") or {}
        self.uncounted = {outcome: set(uncounted.get(outcome) or []) for outcome in ("succeeded", "failed")}
        self.new_succeeded = self._new("succeeded", lambda pod: phase_of(pod) == "Succeeded")
        self.new_failed = self._new("failed", self.has_failed)
        counted = [pod for pod in self.new_failed if pod_failure_policy.counts(self.spec, pod)]
        self.failed = int(self.status.get("failed") or 0) + len(counted) + len(self.uncounted["failed"])
        self.completed_before: set[int] = set()
        self.completed: set[int] = set()
        if self.is_indexed:
            self.completed_before = parse_indexes(self.status.get("completedIndexes"), int(self.spec["completions"]))
            new = {index for pod in self.new_succeeded if (index := index_of(pod)) is not None}
            self.completed = self.completed_before | new
            self.succeeded = len(self.completed)
        else:
            counted_before = int(self.status.get("succeeded") or 0)
            self.succeeded = counted_before + len(self.new_succeeded) + len(self.uncounted["succeeded"])
        self.failed_indexes: set[int] | None = None
        self.awaiting_replacement: dict[int, Obj] = {}
        if self.has_limit_per_index:
            self.failed_indexes = per_index.failed_indexes(self.job, self.pods, self.has_failed)
            ended = [pod for pod in self.pods if is_tracked(pod) and self.has_failed(pod) and self.is_needed(pod)]
            taken = self.completed | self.failed_indexes | {index for pod in self.active if (index := index_of(pod)) is not None}
            self.awaiting_replacement = per_index.last_failures([pod for pod in ended if index_of(pod) not in taken])

    @property
    def has_limit_per_index(self) -> bool:
        return self.is_indexed and self.spec.get("backoffLimitPerIndex") is not None

    @property
    def replaces_only_failed(self) -> bool:
        """Whether a terminating pod is replaced only after it has finished."""
        return self.spec.get("podReplacementPolicy") == "Failed" or bool(self.spec.get("podFailurePolicy"))

    def has_failed(self, pod: Obj) -> bool:
        """Whether a pod has failed. A terminating pod counts as failed, unless only failed pods are replaced or the Job is deleted."""
        if phase_of(pod) == "Failed":
            return True
        return not is_deleting(self.job) and not self.replaces_only_failed and is_deleting(pod) and phase_of(pod) != "Succeeded"

    def is_needed(self, pod: Obj) -> bool:
        """Whether the pod's index is one of the Job's completions."""
        if not self.is_indexed:
            return True  # every pod counts, whichever it is
        index = index_of(pod)
        return index is not None and index < int(self.spec["completions"])

    def _new(self, outcome: str, has_ended: Callable[[Obj], bool]) -> list[Obj]:
        return [
            pod
            for pod in self.pods
            if is_tracked(pod) and uid_of(pod) not in self.uncounted[outcome] and has_ended(pod) and self.is_needed(pod)
        ]
