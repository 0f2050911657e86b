"""Counting each pod that ends exactly once, however often the controller dies in between.

Three steps, each safe to repeat: note the pod's UID in the status, take the finalizer off the pod, then count and forget the UID.
A pod cannot vanish before the second step, and is not counted before the third. For the successes of an Indexed Job the
completed indexes take the place of the UIDs: a set cannot count twice.
"""

from __future__ import annotations

from contextlib import suppress

from trainwright.api import names
from trainwright.api.errors import NotFound
from trainwright.api.kinds import POD
from trainwright.api.objects import Obj, is_deleting, name_of, namespace_of, uid_of
from trainwright.cluster.protocol import Cluster
from trainwright.controlplane.controllers.job import pod_failure_policy
from trainwright.controlplane.controllers.job.indexes import indexes_text
from trainwright.controlplane.controllers.job.look import Look
from trainwright.controlplane.controllers.job.pods import index_of, is_tracked, phase_of
from trainwright.controlplane.controllers.job.verdicts import Verdict


def to_release(look: Look, ending: Verdict | None) -> list[Obj]:
    """The pods that need no watching any more: ended ones and, once the Job is over or going, all of them.

    A failed pod whose index will be tried again stays until its replacement has taken over its count of failures.
    """
    tracked = [pod for pod in look.pods if is_tracked(pod)]
    if ending is not None or is_deleting(look.job):
        return tracked
    kept = {uid_of(pod) for pod in look.awaiting_replacement.values()}
    ended = [pod for pod in tracked if phase_of(pod) == "Succeeded" or look.has_failed(pod)]
    return [pod for pod in ended if uid_of(pod) not in kept or phase_of(pod) == "Succeeded"]


def note(look: Look, releasing: list[Obj], ending: Verdict | None) -> None:
    """Step one: put what these pods came to into the status, as UIDs or as indexes."""
    uncounted = {outcome: set(uids) for outcome, uids in look.uncounted.items()}
    completed = set(look.completed_before)
    for pod in releasing:
        index = index_of(pod)
        if not look.belongs(pod):
            continue
        if phase_of(pod) == "Succeeded" and uid_of(pod) not in uncounted["failed"]:
            if index is not None and look.indexed:
                completed.add(index)
            else:
                uncounted["succeeded"].add(uid_of(pod))
        elif _is_failure(look, pod, ending):
            uncounted["failed"].add(uid_of(pod))
    noted = {outcome: sorted(uids) for outcome, uids in uncounted.items() if uids}
    look.status["uncountedTerminatedPods"] = noted
    if look.indexed:
        look.status["completedIndexes"] = indexes_text(completed)
        look.status["succeeded"] = len(completed)
    if look.failed_indexes is not None:
        look.status["failedIndexes"] = indexes_text(look.failed_indexes)


def count(look: Look, still_tracked: set[str]) -> None:
    """Step three: move the noted pods, whose finalizer is gone, into the counts."""
    uncounted = look.status.get("uncountedTerminatedPods") or {}
    left: Obj = {}
    for outcome, uids in uncounted.items():
        done = [uid for uid in uids if uid not in still_tracked]
        if done:
            look.status[outcome] = int(look.status.get(outcome) or 0) + len(done)
        if len(done) < len(uids):
            left[outcome] = [uid for uid in uids if uid in still_tracked]
    look.status["uncountedTerminatedPods"] = left


def release(cluster: Cluster, pods: list[Obj]) -> set[str]:
    """Step two: take our finalizer off these pods; returns the UIDs of those that have it no more.

    The pods themselves stay as they were read: they may be the store's own.
    """
    released: set[str] = set()
    for pod in pods:
        if not is_tracked(pod):
            continue
        kept = [finalizer for finalizer in pod["metadata"]["finalizers"] if finalizer != names.JOB_TRACKING_FINALIZER]
        with suppress(NotFound):  # gone, and its finalizer with it
            cluster.patch(POD, name_of(pod), {"metadata": {"finalizers": kept or None}}, namespace_of(pod))
        released.add(uid_of(pod))
    return released


def _is_failure(look: Look, pod: Obj, ending: Verdict | None) -> bool:
    """When a Job fails, what still runs has failed too; when it succeeds, what still runs counts neither way."""
    if not look.has_failed(pod) and (ending is None or ending.end != "Failed"):
        return False
    return pod_failure_policy.counts(look.spec, pod)
