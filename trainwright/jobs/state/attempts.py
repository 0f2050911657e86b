"""The attempts of a step: its TrainJobs, one after another. Lists them, counts preemptions, deletes finished ones."""

from __future__ import annotations

import logging

from trainwright.api import names
from trainwright.api.conditions import is_finished, is_true
from trainwright.api.errors import ApiError, Conflict, NotFound
from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import Obj, annotations_of, is_deleting, name_of, namespace_of, stored_annotation, uid_of
from trainwright.cluster.protocol import Cluster
from trainwright.jobs.state.identity import Identity
from trainwright.jobs.state.label_values import label_value

log = logging.getLogger(__name__)


def attempts_of(cluster: Cluster, identity: Identity, namespace: str) -> list[Obj]:
    """Return all TrainJobs of the step, in no particular order. Raises ApiError."""
    selector = f"{names.RUN_LABEL}={label_value(identity.run)},{names.STEP_LABEL}={label_value(identity.step)}"
    jobs = cluster.list(TRAINJOB, namespace, label_selector=selector).items
    return [job for job in jobs if annotations_of(job).get(names.OWNER_ANNOTATION) == str(identity)]


def attempt_of(trainjob: Obj) -> int:
    """Return the attempt number of a TrainJob, counted from 1."""
    return _number(trainjob, names.ATTEMPT_ANNOTATION, 1)


def preemptions_so_far(trainjob: Obj) -> int:
    """Return how many attempts of the step were preempted, up to and including this one."""
    return preemptions_before(trainjob) + int(names.PREEMPTED_ANNOTATION in annotations_of(trainjob))


def preemptions_before(trainjob: Obj) -> int:
    """Return how many attempts before this one were preempted."""
    return _number(trainjob, names.PREEMPTIONS_ANNOTATION, 0)


def needs_new_attempt(trainjob: Obj) -> bool:
    """Whether the job failed, is being deleted or was superseded, so that it can be neither awaited nor resumed."""
    return is_true(trainjob, "Failed") or is_deleting(trainjob) or names.SUPERSEDED_ANNOTATION in annotations_of(trainjob)


def delete_previous_attempts(cluster: Cluster, current: Obj, identity: Identity) -> None:
    """Delete the finished jobs of the step that precede `current`.

    A job that cannot be deleted is kept, with a warning. Raises ApiError if the jobs cannot be listed.
    """
    number = attempt_of(current)
    ended = [job for job in attempts_of(cluster, identity, namespace_of(current)) if is_finished(job)]
    _delete(cluster, [job for job in ended if attempt_of(job) < number])


def _delete(cluster: Cluster, jobs: list[Obj]) -> None:
    for job in jobs:
        if is_deleting(job):
            continue
        try:
            cluster.delete(TRAINJOB, name_of(job), namespace_of(job), propagation="Foreground", uid=uid_of(job))
        except (NotFound, Conflict):  # already deleted, or another job has the same name
            continue
        except ApiError as error:
            log.warning("event=previous_attempt_not_deleted name=%s error=%s", name_of(job), error.message)
        else:
            log.info("event=previous_attempt_deleted name=%s", name_of(job))


def _number(trainjob: Obj, annotation: str, default: int) -> int:
    text = stored_annotation(trainjob, annotation) or ""
    return int(text) if text.isdecimal() else default
