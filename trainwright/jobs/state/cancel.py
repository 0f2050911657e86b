"""Cancels a TrainJob: suspends it, so that it can resume later, deletes it, or keeps it. A job is identified by its UID.

A finished job is left unchanged: nothing of it runs, and its status is still of interest.
"""

from __future__ import annotations

import contextlib
import enum
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from trainwright.api import names
from trainwright.api.conditions import is_finished
from trainwright.api.errors import ApiError, Conflict, Forbidden, Invalid, NotFound
from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import Obj, annotations_of, generation_of, is_deleting, name_of, namespace_of, uid_of
from trainwright.api.phase import Verdict, is_superseded, is_suspended_by_us, phase_of, verdict_of, written_verdict
from trainwright.cluster.protocol import Cluster
from trainwright.jobs.state.attempts import current_version, versions_of
from trainwright.jobs.state.remaining_pods import describe_pods, jobset_may_create_pods, remaining_pods
from trainwright.jobs.state.waiters import workflows_of
from trainwright.submission.suspension import is_queued, suspension_mark

POD_TERMINATION_SECONDS = 10.0
"""Seconds to wait for the pods of a cancelled job to end: less than the client's own grace period after SIGTERM."""
_POLL_SECONDS = 0.25


class CancelPolicy(enum.StrEnum):
    """What to do with a job when its wait is cancelled."""

    suspend = "suspend"
    delete = "delete"
    keep = "keep"


class CancelOutcome(enum.StrEnum):
    """What was done with the job, as text."""

    suspended = "it is suspended, and resumes when it is submitted again or when spec.suspend is set to false"
    given_up = "it is suspended, and counts as failed: submitting it again starts another job"
    deleted = "it is deleted"
    kept = "it keeps running"
    kept_waiting = "it is kept, and may still start"
    stays_suspended = "it stays suspended"
    stays_queued = "it stays in its queue"
    ended = "it had already ended"
    gone = "it no longer exists"
    foreign = "it was not created by Trainwright and is left unchanged"
    dequeued = "it was still in its queue, which would have started it later: it is deleted"
    queued = "its queue has suspended it, and may start it again: delete it to prevent that"


@dataclass(frozen=True)
class CancelResult:
    """The outcome for a job and its pods."""

    outcome: CancelOutcome
    remaining: str = ""
    """Pods that had not ended at the timeout, or the JobSet that may create some; empty if there are none."""
    unread: str = ""
    """Why the pods could not be checked; empty if they were."""
    workflows: tuple[str, ...] = ()
    """Workflows of pipelines that own the suspended job."""

    def __str__(self) -> str:
        return "; ".join(filter(None, (self.outcome.value, self.pods_message(), self.deletion_message())))

    def deletion_message(self) -> str:
        """Return when a suspended job is deleted, and how to prevent that; empty if nothing deletes it."""
        if not self.workflows:
            return ""
        return (
            f"it is deleted with {', '.join(self.workflows)}, by default an hour after the end of that workflow, unless the step runs "
            "again before or its metadata.ownerReferences are removed"
        )

    def pods_message(self) -> str:
        """Return which pods are left or why they could not be checked; else empty."""
        return f"its pods could not be checked: {self.unread}" if self.unread else self.remaining


def cancel_owned_job(
    cluster: Cluster,
    trainjob: Obj,
    policy: CancelPolicy,
    *,
    verdict: Verdict | None = None,
    timeout_seconds: float | None = POD_TERMINATION_SECONDS,
) -> str:
    """Cancel a job, unless it has no owner annotation of Trainwright; returns the outcome as text. Raises ApiError.

    A job that is suspended gets the `verdict`, if there is one, in the same request.

    A job that its queue has never admitted is deleted instead of suspended: suspension is how it waits, and the queue would start it
    later. Its step submits it again. One that is admitted meanwhile is suspended like any other.
    """
    if policy is not CancelPolicy.keep:
        current = current_version(cluster, trainjob)
        if current is None:  # deleted, or replaced by another job of its name
            return str(CancelResult(CancelOutcome.gone))
        if names.OWNER_ANNOTATION not in annotations_of(current):  # created by a person: only that person decides about it
            return str(CancelResult(CancelOutcome.foreign))
        if policy is CancelPolicy.suspend and is_queued(current):
            outcome = _leave_queue(cluster, current)
            if outcome is not None:  # None: admitted meanwhile, so it is suspended like any other
                return str(CancelResult(outcome))
    return str(cancel_job(cluster, trainjob, policy, verdict=verdict, timeout_seconds=timeout_seconds))


def _leave_queue(cluster: Cluster, trainjob: Obj) -> CancelOutcome | None:
    """Delete a queued job that has never run; returns None if its queue admits it meanwhile.

    A job that has run may own a claim with its checkpoints, so it is left to its owner.
    """
    for current in versions_of(cluster, trainjob, "deleted"):
        if is_deleting(current):  # somebody else was first
            return CancelOutcome.deleted
        if not is_queued(current):  # admitted meanwhile: it runs, and is suspended like any other
            return None
        if generation_of(current) > 1:  # its spec has changed since it was created: it has run before
            return CancelOutcome.queued
        try:
            if _delete_version(cluster, current):
                return CancelOutcome.dequeued
        except Forbidden:  # suspending it would change nothing: its queue resumes it
            return CancelOutcome.queued
    return CancelOutcome.gone


def cancel_job(
    cluster: Cluster, trainjob: Obj, policy: CancelPolicy, *, verdict: Verdict | None = None, timeout_seconds: float | None
) -> CancelResult:
    """Cancel the job with this UID, whoever created it, and wait up to `timeout_seconds` for its pods to end. Idempotent.

    A job that is suspended gets the `verdict`. Without a timeout its pods are not looked at. Raises ApiError if the job cannot be
    changed; an error while checking its pods is only reported in the result.
    """
    if policy is CancelPolicy.keep:
        return CancelResult(_kept(cluster, trainjob))
    result = CancelResult(_delete(cluster, trainjob)) if policy is CancelPolicy.delete else _suspend(cluster, trainjob, verdict)
    if result.outcome not in (CancelOutcome.deleted, CancelOutcome.suspended, CancelOutcome.given_up) or timeout_seconds is None:
        return result
    deadline = time.monotonic() + timeout_seconds
    while True:
        try:
            remaining = _remaining(cluster, trainjob)
        except ApiError as error:  # the job is stopped all the same
            return replace(result, unread=error.message)
        seconds_left = deadline - time.monotonic()
        if not remaining or seconds_left <= 0:
            return replace(result, remaining=remaining)
        time.sleep(min(_POLL_SECONDS, seconds_left))


def _kept(cluster: Cluster, trainjob: Obj) -> CancelOutcome:
    """Return what a job that is not to be changed does; its last known state counts if it cannot be read."""
    try:
        current = current_version(cluster, trainjob)
    except ApiError:  # what was last seen of it has to do
        current = trainjob
    if current is None:
        return CancelOutcome.gone
    if phase_of(current).is_final:
        return CancelOutcome.ended
    if not current["spec"].get("suspend"):
        steps = (current.get("status") or {}).get("jobsStatus") or []
        has_run = any(step.get(count) for step in steps for count in ("ready", "succeeded", "failed"))
        return CancelOutcome.kept if has_run else CancelOutcome.kept_waiting
    return CancelOutcome.stays_queued if is_queued(current) else CancelOutcome.stays_suspended


def cancel_version(cluster: Cluster, current: Obj, policy: CancelPolicy, marks: dict[str, str]) -> CancelOutcome | None:
    """Suspend the job with these marks as annotations, or delete it, only in this version; a queued one as `cancel_owned_job` does.
    A job that may not be deleted is suspended.

    Returns None if it has changed since, or no longer exists. Raises ApiError.
    """
    if policy is CancelPolicy.suspend and is_queued(current):
        if generation_of(current) > 1:  # it has run before: it may own a claim with its checkpoints
            return CancelOutcome.queued
        return CancelOutcome.dequeued if _delete_version(cluster, current) else None
    if policy is CancelPolicy.delete:
        with contextlib.suppress(Forbidden):  # as of a controller, which may only patch jobs
            return CancelOutcome.deleted if _delete_version(cluster, current) else None
    return CancelOutcome.suspended if _suspend_version(cluster, current, None, marks) else None


def cancel_by_suspending(cluster: Cluster, trainjob: Obj, verdict: Verdict | None = None) -> str:
    """Suspend a job, as `cancel_owned_job` does; returns the outcome as text."""
    return cancel_owned_job(cluster, trainjob, CancelPolicy.suspend, verdict=verdict)


def _suspend(cluster: Cluster, trainjob: Obj, verdict: Verdict | None) -> CancelResult:
    outcome = CancelOutcome.suspended if verdict is None or verdict.resumable else CancelOutcome.given_up
    for current in versions_of(cluster, trainjob, "suspended"):
        if phase_of(current).is_final:  # suspended now, it would look as if it could be resumed
            return CancelResult(CancelOutcome.ended)
        if _suspend_version(cluster, current, verdict):
            return CancelResult(outcome, workflows=workflows_of(current))
    return CancelResult(CancelOutcome.gone)


def _delete(cluster: Cluster, trainjob: Obj) -> CancelOutcome:
    """Delete the job, unless it finishes in the meantime."""
    for current in versions_of(cluster, trainjob, "deleted"):
        if is_deleting(current):
            return CancelOutcome.deleted
        if is_finished(current):  # its status is still of interest
            return CancelOutcome.ended
        if _delete_version(cluster, current):
            return CancelOutcome.deleted
    return CancelOutcome.gone


def _delete_version(cluster: Cluster, current: Obj) -> bool:
    """Delete the job as it was read; returns False if it has changed since, or no longer exists. Raises ApiError."""
    place, version = (TRAINJOB, name_of(current), namespace_of(current)), current["metadata"]["resourceVersion"]
    try:
        cluster.delete(*place, propagation="Foreground", uid=uid_of(current), resource_version=version)
    except (NotFound, Conflict):  # the caller reads it again, and decides anew
        return False
    return True


def _remaining(cluster: Cluster, trainjob: Obj) -> str:
    """Return which pods have not ended, or the JobSet that is not suspended yet and may still create pods."""
    if pods := remaining_pods(cluster, trainjob):
        return describe_pods(pods)
    return f"not stopped yet: JobSet {name_of(trainjob)}" if jobset_may_create_pods(cluster, trainjob) else ""


def suspend_job(cluster: Cluster, trainjob: Obj, verdict: Verdict | None = None) -> bool:
    """Suspend a job: its pods end, its checkpoints stay, and submitting the same step again resumes it.

    A job with a `verdict` counts as failed, and unless that is resumable, submitting the step again creates a new job. A job that has
    ended only gets the verdict that another one supersedes it. A job that is already suspended by someone else is not resumed by
    submitting its step again. Returns False if the job no longer exists. Raises ApiError.
    """
    versions = versions_of(cluster, trainjob, "suspended")
    return any(_suspend_version(cluster, current, verdict) for current in versions)


def _suspend_version(
    cluster: Cluster, current: Obj, verdict: Verdict | None, marks: Mapping[str, str] = MappingProxyType({})
) -> bool:
    """Suspend the job as it was read; returns False if it has changed since, or no longer exists. Raises ApiError."""
    with contextlib.suppress(NotFound, Conflict):
        try:
            if patch := _suspend_patch(current, verdict):
                patch["metadata"]["annotations"] |= marks
                cluster.patch(TRAINJOB, name_of(current), patch, namespace_of(current))
        except Invalid:  # the annotations of the job may leave no room for a verdict: that it stops matters more
            if verdict is None or not (patch := _suspend_patch(current, None)):
                raise
            cluster.patch(TRAINJOB, name_of(current), patch, namespace_of(current))
        return True
    return False


def _suspend_patch(current: Obj, verdict: Verdict | None) -> Obj:
    """Return the patch that suspends this version of the job; empty if there is nothing to change."""
    spec: Obj = {}
    if not (is_finished(current) or current["spec"].get("suspend")):
        spec = {"spec": {"suspend": True}}
        annotations = suspension_mark(current) | (verdict.annotation(generation_of(current) + 1) if verdict is not None else {})
    elif verdict is not None and (taken := _taken(current, verdict)) is not None:
        annotations = taken.annotation(generation_of(current))
    else:
        return {}
    return {**spec, "metadata": {"resourceVersion": current["metadata"]["resourceVersion"], "annotations": annotations}}


def _taken(current: Obj, verdict: Verdict) -> Verdict | None:
    """Return the verdict that a job gets which has ended, or is suspended; None if it keeps what it has.

    The first one stays, with the mark that another job of its step takes its place: two would write to one folder. A person's
    suspension does not fail the job, also if a client has waited too long for its end.
    """
    if verdict.is_superseded:  # the first verdict says why the job ended
        return None if is_superseded(current) else replace(written_verdict(current) or verdict, is_superseded=True)
    is_new = is_suspended_by_us(current) and verdict_of(current) is None
    return verdict if is_new and verdict.details.get("what") != "queue" else None


def delete_job(cluster: Cluster, trainjob: Obj) -> bool:
    """Delete a job and everything that it owns. False if it no longer exists, or was replaced by another job of the same name."""
    try:
        cluster.delete(TRAINJOB, name_of(trainjob), namespace_of(trainjob), propagation="Foreground", uid=uid_of(trainjob))
    except (NotFound, Conflict):
        return False
    return True
