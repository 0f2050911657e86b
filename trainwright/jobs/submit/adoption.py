"""Adopts an existing TrainJob: waits for its other client to go, resumes it and takes the lease. Or supersedes it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType

from trainwright.api import names
from trainwright.api.conditions import is_finished
from trainwright.api.errors import Conflict, NotFound
from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import Obj, annotations_of, name_of, namespace_of
from trainwright.api.verdict import superseded, verdict_of
from trainwright.cluster.protocol import Cluster
from trainwright.jobs.diagnosis.errors import Cancelled
from trainwright.jobs.state.attempts import needs_new_attempt, versions_of
from trainwright.jobs.state.cancel import CancelPolicy, cancel_owned_job, suspend_job
from trainwright.jobs.state.remaining_pods import wait_until_pods_ended
from trainwright.jobs.state.waiters import RENEWALS, active_lease_of, release_patch, renewal_patch, waiter_lease_of
from trainwright.submission.suspension import MARKS, early_stop_reason, is_suspended_by_us

log = logging.getLogger(__name__)
_POLL_SECONDS = 1.0
Notes = Mapping[str, str | None]
"""Annotations about the client that waits for a job; None removes that of an earlier one."""


def supersede(cluster: Cluster, trainjob: Obj, on_cancel: str, reason: str) -> None:
    """Stop a job for good, before its step submits another one: both would write to one folder.

    It is deleted if `on_cancel` says so, else suspended, also with `keep`. Raises ApiError, so that two jobs never run at once.
    """
    policy = CancelPolicy.delete if on_cancel == CancelPolicy.delete else CancelPolicy.suspend
    if policy is CancelPolicy.suspend:
        suspend_job(cluster, trainjob, superseded(reason))
    cancel_owned_job(cluster, trainjob, policy)
    log.warning("event=trainjob_superseded name=%s on_cancel=%s reason=%r", name_of(trainjob), policy.value, reason)


def wait_until_unwatched(cluster: Cluster, trainjob: Obj, stop: threading.Event | None = None) -> Obj | None:
    """Wait while another client renews the lease of the job; returns the job as it is then, None if it is gone.

    A client is gone after two intervals without a renewal. Raises ApiError, Cancelled if `stop` is set.
    """
    stop = stop or threading.Event()
    current, renewed, since = trainjob, "", time.monotonic()
    while (lease := active_lease_of(current)) is not None:
        if lease.renewed != renewed:
            renewed, since = lease.renewed, time.monotonic()
        if time.monotonic() - since > 2 * lease.seconds / RENEWALS:
            break
        if stop.wait(min(_POLL_SECONDS, lease.seconds / RENEWALS)):
            raise Cancelled(f"the wait for another client of TrainJob {name_of(trainjob)} was cancelled; no job was created")
        try:
            current = cluster.get(TRAINJOB, name_of(trainjob), namespace_of(trainjob))
        except NotFound:
            return None
    return current


def resume_if_suspended_by_us(
    cluster: Cluster, trainjob: Obj, stop: threading.Event | None = None, notes: Notes = MappingProxyType({})
) -> Obj:
    """Resume a job that an earlier cancellation by Trainwright suspended; any other suspension is kept, and so is an early stop.

    Its pods end first, see `wait_until_pods_ended`; if `stop` is set meanwhile, the job stays suspended. The same request writes
    the `notes` of who waits for it from now on. Returns the job as it is then. Raises ApiError, Conflict if it changes all the time.
    """
    if not _may_resume(trainjob) or not wait_until_pods_ended(cluster, trainjob, stop, to_resume=True):
        return trainjob
    return resume_at_once(cluster, trainjob, notes)


def resume_at_once(cluster: Cluster, trainjob: Obj, notes: Notes = MappingProxyType({})) -> Obj:
    """As `resume_if_suspended_by_us`, for a job whose pods are known to have ended."""
    for current in versions_of(cluster, trainjob, "resumed"):
        if not _may_resume(current):  # somebody else has decided about it in the meantime
            return current
        version = current["metadata"]["resourceVersion"]
        annotations = {**dict.fromkeys(MARKS), **notes}
        patch = {"spec": {"suspend": False}, "metadata": {"resourceVersion": version, "annotations": annotations}}
        try:
            return cluster.patch(TRAINJOB, name_of(trainjob), patch, trainjob["metadata"]["namespace"])
        except Conflict:  # its status changed in the meantime
            continue
    return trainjob


def _may_resume(trainjob: Obj) -> bool:
    return is_suspended_by_us(trainjob) and not needs_new_attempt(trainjob) and not early_stop_reason(trainjob)


def take_lease(cluster: Cluster, trainjob: Obj, seconds: int = 0, notes: Notes = MappingProxyType({})) -> Obj:
    """Replace the lease of an earlier client, whose expiry would suspend a job that this one waits for, by one of so many seconds.

    0 is none. The `notes` are those of the new waiter. The verdict of an earlier client no longer counts: somebody has started the
    job again, and if that was a person, the mark of its suspension does not count either.
    """
    if is_finished(trainjob) or verdict_of(trainjob) is not None:
        return trainjob
    noted = annotations_of(trainjob)
    stale = [names.VERDICT_ANNOTATION, *([] if trainjob["spec"].get("suspend") else [names.SUSPENDED_BY_ANNOTATION])]
    marks = {name: None for name in stale if name in noted} | {key: text for key, text in notes.items() if noted.get(key) != text}
    if waiter_lease_of(trainjob) is None and not marks and not seconds:
        return trainjob
    patch = renewal_patch(trainjob, seconds, datetime.now(UTC)) if seconds else release_patch(trainjob)
    patch["metadata"]["annotations"] |= marks
    return cluster.patch(TRAINJOB, name_of(trainjob), patch, trainjob["metadata"]["namespace"])
