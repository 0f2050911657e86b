"""Resumes a suspended TrainJob because a user asks for it, whoever has suspended it.

Submitting a step again resumes only what Trainwright has suspended, see `resume_if_suspended_by_us`.
"""

from __future__ import annotations

import enum

from trainwright.api import names
from trainwright.api.conditions import is_finished
from trainwright.api.errors import Conflict, NotFound
from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import Obj, annotations_of, is_deleting, name_of, namespace_of
from trainwright.api.phase import is_superseded
from trainwright.cluster.protocol import Cluster
from trainwright.jobs.state.attempts import has_later_attempt, needs_new_attempt, versions_of
from trainwright.jobs.state.remaining_pods import wait_until_pods_ended
from trainwright.submission.suspension import MARKS, is_queued


class ResumeOutcome(enum.StrEnum):
    """What was done with the job, as text."""

    resumed = "it is resumed"
    running = "it was not suspended"
    queued = "it waits in its queue, which starts it"
    starting = "its submission is not complete, which starts it"
    superseded = "another job of its step writes to the same folder: it stays suspended"
    ended = "it had already ended"
    gone = "it no longer exists"


def resume_job(cluster: Cluster, trainjob: Obj) -> ResumeOutcome:
    """Resume the job with this UID. Idempotent; a job in a queue is left to the queue, and a superseded one stays suspended.

    A job that its client has given up runs again, and its verdict is removed, unless its step has started another one since.
    Its pods end first, see `wait_until_pods_ended`. Raises ApiError if the job cannot be changed, Conflict if it changes all the time.
    """
    is_waited_for = False
    for current in versions_of(cluster, trainjob, "resumed"):
        if is_deleting(current):
            return ResumeOutcome.gone
        if (reason := _not_resumed(current)) is not None:
            return reason
        if needs_new_attempt(current) and has_later_attempt(cluster, current):  # both would write to one folder
            return ResumeOutcome.superseded
        if not is_waited_for:
            wait_until_pods_ended(cluster, current, to_resume=True)
            is_waited_for = True
            continue  # it may have changed
        # Whoever resumes it wants it to run, whatever became of the task that waited for it.
        marks = {name: None for name in (*MARKS, names.AWAITED_BY_ANNOTATION) if name in annotations_of(current)}
        metadata = {"resourceVersion": current["metadata"]["resourceVersion"], **({"annotations": marks} if marks else {})}
        try:
            cluster.patch(TRAINJOB, name_of(trainjob), {"spec": {"suspend": False}, "metadata": metadata}, namespace_of(trainjob))
        except NotFound:
            return ResumeOutcome.gone
        except Conflict:  # its status changed in the meantime
            continue
        return ResumeOutcome.resumed
    return ResumeOutcome.gone


def _not_resumed(current: Obj) -> ResumeOutcome | None:
    """Return why this version of the job is not to be resumed; None if it is."""
    if is_finished(current):
        return ResumeOutcome.ended
    if not current["spec"].get("suspend"):
        return ResumeOutcome.running
    if is_superseded(current):
        return ResumeOutcome.superseded
    if is_queued(current):
        return ResumeOutcome.queued
    first = names.suspended_by_us(1)  # a suspension later on makes the second version of the spec
    if current["metadata"].get("generation") == 1 and annotations_of(current).get(names.SUSPENDED_BY_ANNOTATION) == first:
        return ResumeOutcome.starting
    return None
