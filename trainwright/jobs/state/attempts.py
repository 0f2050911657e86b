"""The attempts of a step: its TrainJobs, one after another. Lists them, counts those that were submitted again, changes them, and
deletes finished ones.

The counts are stored on the TrainJobs: one that is submitted again is annotated, and each new one stores the number before it.
Neither a client crash nor the deletion of earlier attempts resets a count, and no attempt is counted twice. A TrainJob is changed
in the version that was read, and read again if it has changed since.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

from trainwright.api import names
from trainwright.api.conditions import is_finished, is_true
from trainwright.api.errors import ApiError, Conflict, NotFound
from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import Obj, annotations_of, is_deleting, labels_of, name_of, namespace_of, uid_of
from trainwright.api.phase import is_superseded, verdict_of
from trainwright.cluster.protocol import Cluster
from trainwright.jobs.state.identity import Identity
from trainwright.jobs.state.run_folder import label_value

log = logging.getLogger(__name__)
_MAX_TRIES = 10
"""Without pauses: a try fails only if another change has succeeded meanwhile."""


def attempts_of(cluster: Cluster, identity: Identity, namespace: str) -> list[Obj]:
    """Return all TrainJobs of the step, in no particular order. Raises ApiError."""
    return _jobs_of(cluster, str(identity), label_value(identity.run), label_value(identity.step), namespace)


def _jobs_of(cluster: Cluster, owner: str, run: str, step: str, namespace: str) -> list[Obj]:
    selector = f"{names.RUN_LABEL}={run},{names.STEP_LABEL}={step}"
    jobs = cluster.list(TRAINJOB, namespace, label_selector=selector).items
    return [job for job in jobs if annotations_of(job).get(names.OWNER_ANNOTATION) == owner]


def has_later_attempt(cluster: Cluster, trainjob: Obj) -> bool:
    """Whether the step of a job has submitted another one since. Raises ApiError."""
    owner, labels = annotations_of(trainjob).get(names.OWNER_ANNOTATION), labels_of(trainjob)
    if not owner or not {names.RUN_LABEL, names.STEP_LABEL} <= labels.keys():
        return False
    jobs = _jobs_of(cluster, owner, labels[names.RUN_LABEL], labels[names.STEP_LABEL], namespace_of(trainjob))
    return any(attempt_of(job) > attempt_of(trainjob) and not is_deleting(job) for job in jobs)


def attempt_of(trainjob: Obj) -> int:
    """Return the attempt number of a TrainJob, counted from 1."""
    return _number(trainjob, names.ATTEMPT_ANNOTATION, 1)


def _number(trainjob: Obj, annotation: str, default: int) -> int:
    text = annotations_of(trainjob).get(annotation) or ""
    return int(text) if text.isdecimal() else default


def was_preempted(trainjob: Obj) -> bool:
    """Whether the job is annotated as preempted."""
    return names.PREEMPTED_ANNOTATION in annotations_of(trainjob)


def was_retried(trainjob: Obj) -> bool:
    """Whether the job is annotated as submitted again after its failure."""
    return names.RETRIED_ANNOTATION in annotations_of(trainjob)


def retries_so_far(trainjob: Obj) -> int:
    """Return how many attempts of the step were submitted again after a failure, up to and including this one."""
    return _number(trainjob, names.RETRIES_ANNOTATION, 0) + int(was_retried(trainjob))


def preemptions_so_far(trainjob: Obj) -> int:
    """Return how many attempts of the step were preempted, up to and including this one."""
    return preemptions_before(trainjob) + int(was_preempted(trainjob))


def preemptions_before(trainjob: Obj) -> int:
    """Return how many attempts before this one were preempted."""
    return _number(trainjob, names.PREEMPTIONS_ANNOTATION, 0)


def needs_new_attempt(trainjob: Obj) -> bool:
    """Whether the job failed, was given up, is being deleted or was superseded, so that it can be neither awaited nor resumed."""
    verdict = verdict_of(trainjob)
    is_given_up = verdict is not None and not verdict.resumable
    return is_true(trainjob, "Failed") or is_given_up or is_deleting(trainjob) or is_superseded(trainjob)


def write_mark(cluster: Cluster, trainjob: Obj, annotation: str) -> Obj:
    """Annotate the job with this UID; returns an annotated copy if it no longer exists. Idempotent. Raises ApiError."""
    for current in versions_of(cluster, trainjob, f"annotated with {annotation}"):
        metadata = {"resourceVersion": current["metadata"]["resourceVersion"], "annotations": {annotation: "true"}}
        with contextlib.suppress(Conflict, NotFound):  # its status changed in the meantime, or it was deleted
            return cluster.patch(TRAINJOB, name_of(trainjob), {"metadata": metadata}, namespace_of(trainjob))
    return with_mark(trainjob, annotation)


def with_mark(trainjob: Obj, annotation: str) -> Obj:
    """Return a copy of the job with the annotation."""
    return {**trainjob, "metadata": {**trainjob["metadata"], "annotations": {**annotations_of(trainjob), annotation: "true"}}}


def delete_previous_attempts(cluster: Cluster, current: Obj, identity: Identity) -> None:
    """Delete the jobs of the step that precede `current` and have ended, or were given up.

    A job that cannot be deleted is kept, with a warning. Raises ApiError if the jobs cannot be listed.
    """
    number = attempt_of(current)
    for job in attempts_of(cluster, identity, namespace_of(current)):
        is_over = is_finished(job) or (verdict_of(job) is not None and not is_superseded(job))
        # The current one, a later one, one that may still train, or one that is being deleted.
        if attempt_of(job) >= number or not is_over or is_deleting(job):
            continue
        try:
            cluster.delete(TRAINJOB, name_of(job), namespace_of(job), propagation="Foreground", uid=uid_of(job))
        except (NotFound, Conflict):  # already deleted, or another job has the same name
            continue
        except ApiError as error:  # it costs only room: the current one has what it needs
            log.warning("event=previous_attempt_not_deleted name=%s error=%s", name_of(job), error.message)
        else:
            log.info("event=previous_attempt_deleted name=%s", name_of(job))


def current_version(cluster: Cluster, trainjob: Obj) -> Obj | None:
    """Return the current state of the job; None if it was deleted, or replaced by another job of the same name. Raises ApiError."""
    try:
        current = cluster.get(TRAINJOB, name_of(trainjob), namespace_of(trainjob))
    except NotFound:
        return None
    return current if uid_of(current) == uid_of(trainjob) else None


def versions_of(cluster: Cluster, trainjob: Obj, change: str) -> Iterator[Obj]:
    """Yield the job as it is now, for one try after the other to change it in this version; ends if it no longer exists.

    Raises Conflict, with the `change` that was tried, if it has changed again during each of the tries.
    """
    for _ in range(_MAX_TRIES):
        current = current_version(cluster, trainjob)
        if current is None:
            return
        yield current
    raise Conflict(f"TrainJob {name_of(trainjob)} changed {_MAX_TRIES} times while it was being {change}")
