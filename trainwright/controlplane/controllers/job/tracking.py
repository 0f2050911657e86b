"""Counts each finished pod exactly once, even if the controller is killed.

Three idempotent steps: record the pod's UID in the status, remove the pod's finalizer, then count the pod and remove the UID.
A pod cannot be deleted before the second step, and is not counted before the third. For an Indexed Job the set of completed
indexes replaces the UIDs of succeeded pods.
"""

from __future__ import annotations

from contextlib import suppress

from trainwright.api import names
from trainwright.api.errors import NotFound
from trainwright.api.integers import indexes_text
from trainwright.api.kinds import POD
from trainwright.api.objects import Obj, is_deleting, name_of, namespace_of, uid_of
from trainwright.cluster.protocol import Cluster
from trainwright.controlplane.controllers.job import pod_failure_policy
from trainwright.controlplane.controllers.job.finish import FinishReason
from trainwright.controlplane.controllers.job.pods import index_of, is_tracked, phase_of
from trainwright.controlplane.controllers.job.reconcile_state import ReconcileState


def pods_to_release(state: ReconcileState, finish: FinishReason | None) -> list[Obj]:
    """Return pods that need no tracking any more: finished ones and, if the Job has finished or is being deleted, all.

    A failed pod whose index will be retried is kept until its replacement has taken over its failure count.
    """
    tracked = [pod for pod in state.pods if is_tracked(pod)]
    if finish is not None or is_deleting(state.job):
        return tracked
    kept = {uid_of(pod) for pod in state.awaiting_replacement.values()}
    ended = [pod for pod in tracked if phase_of(pod) == "Succeeded" or state.has_failed(pod)]
    return [pod for pod in ended if uid_of(pod) not in kept or phase_of(pod) == "Succeeded"]


def record_uncounted(state: ReconcileState, releasing: list[Obj], finish: FinishReason | None) -> None:
    """Step one: record the results of these pods in the status, as UIDs or as indexes."""
    uncounted = {outcome: set(uids) for outcome, uids in state.uncounted.items()}
    completed = set(state.completed_before)
    is_failing = finish is not None and finish.end == "Failed"  # running pods count as failed then; else they do not count
    for pod in releasing:
        index = index_of(pod)
        if not state.is_needed(pod):
            continue  # its index was scaled away: neither success nor failure counts
        if phase_of(pod) == "Succeeded" and uid_of(pod) not in uncounted["failed"]:
            if index is not None and state.is_indexed:
                completed.add(index)
            else:
                uncounted["succeeded"].add(uid_of(pod))
        elif (is_failing or state.has_failed(pod)) and pod_failure_policy.counts(state.spec, pod):
            uncounted["failed"].add(uid_of(pod))
    state.status["uncountedTerminatedPods"] = {outcome: sorted(uids) for outcome, uids in uncounted.items() if uids}
    if state.is_indexed:
        state.status["completedIndexes"] = indexes_text(completed)
        state.status["succeeded"] = len(completed)
    if state.failed_indexes is not None:
        state.status["failedIndexes"] = indexes_text(state.failed_indexes)


def count_released(state: ReconcileState, still_tracked: set[str]) -> None:
    """Step three: count the recorded pods whose finalizer has been removed."""
    uncounted = state.status.get("uncountedTerminatedPods") or {}
    left: Obj = {}
    for outcome, uids in uncounted.items():
        done = [uid for uid in uids if uid not in still_tracked]
        if done:
            state.status[outcome] = int(state.status.get(outcome) or 0) + len(done)
        if len(done) < len(uids):
            left[outcome] = [uid for uid in uids if uid in still_tracked]
    state.status["uncountedTerminatedPods"] = left


def remove_finalizers(cluster: Cluster, pods: list[Obj]) -> set[str]:
    """Step two: remove the tracking finalizer from these pods. Returns the UIDs of those without it.

    The given objects are not modified, since they may be shared with the store.
    """
    released: set[str] = set()
    for pod in pods:
        if not is_tracked(pod):
            continue  # released by an earlier reconcile
        kept = [finalizer for finalizer in pod["metadata"]["finalizers"] if finalizer != names.JOB_TRACKING_FINALIZER]
        with suppress(NotFound):  # already deleted
            cluster.patch(POD, name_of(pod), {"metadata": {"finalizers": kept or None}}, namespace_of(pod))
        released.add(uid_of(pod))
    return released
