"""Counting each pod that ends exactly once, however often the controller dies in between.

Three steps, each safe to repeat: note the pod's UID in the status, take the finalizer off the pod, then count and forget the UID.
A pod cannot vanish before the second step, and is not counted before the third.
"""

from __future__ import annotations

from trainwright.api import names
from trainwright.api.errors import NotFound
from trainwright.api.kinds import POD
from trainwright.api.objects import Obj, is_deleting, name_of, namespace_of, uid_of
from trainwright.cluster.protocol import Cluster
from trainwright.controlplane.controllers.job.indexes import indexes_text, parse_indexes
from trainwright.controlplane.controllers.job.pods import index_of, is_tracked, phase_of


def note_finished(job: Obj, status: Obj, pods: list[Obj]) -> bool:
    """Step one: put the UIDs of newly ended pods into `uncountedTerminatedPods`. Returns whether there were any."""
    uncounted = status.setdefault("uncountedTerminatedPods", {})
    noted = {uid for uids in uncounted.values() for uid in uids}
    deleted_counts = job["spec"].get("podReplacementPolicy") != "Failed"
    changed = False
    for pod in pods:
        if not is_tracked(pod) or uid_of(pod) in noted:
            continue
        if phase_of(pod) == "Succeeded":
            uncounted.setdefault("succeeded", []).append(uid_of(pod))
        elif phase_of(pod) == "Failed" or (deleted_counts and is_deleting(pod) and not job["spec"].get("suspend")):
            uncounted.setdefault("failed", []).append(uid_of(pod))
        else:
            continue
        changed = True
    return changed


def release(cluster: Cluster, pods: list[Obj]) -> None:
    """Step two: take our finalizer off these pods."""
    for pod in pods:
        if not is_tracked(pod):
            continue
        kept = [finalizer for finalizer in pod["metadata"]["finalizers"] if finalizer != names.JOB_TRACKING_FINALIZER]
        try:
            cluster.patch(POD, name_of(pod), {"metadata": {"finalizers": kept or None}}, namespace_of(pod))
        except NotFound:
            continue
        pod["metadata"]["finalizers"] = kept


def count(job: Obj, status: Obj, pods: list[Obj]) -> None:
    """Step three: move the noted pods into the counts; for Indexed Jobs, success is a set of indexes."""
    uncounted = status.pop("uncountedTerminatedPods", None) or {}
    succeeded = set(uncounted.get("succeeded") or [])
    if uncounted.get("failed"):
        status["failed"] = (status.get("failed") or 0) + len(uncounted["failed"])
    if job["spec"].get("completionMode") != "Indexed":
        if succeeded:
            status["succeeded"] = (status.get("succeeded") or 0) + len(succeeded)
        return
    done = parse_indexes(status.get("completedIndexes"))
    done |= {index for pod in pods if phase_of(pod) == "Succeeded" and (index := index_of(pod)) is not None}
    done = {index for index in done if index < job["spec"]["completions"]}
    if done:
        status["completedIndexes"] = indexes_text(done)
        status["succeeded"] = len(done)
