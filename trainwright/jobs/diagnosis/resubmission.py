"""Resubmits a preempted or failed job as its next attempt, which resumes from its checkpoint, within two budgets of its step.

Preemptions have a budget separate from the retries of jobs and orchestrators. `job_retries` are for Kubeflow Pipelines, whose
servers do not retry a failed step as installed. A failure that would only repeat is not retried.
"""

from __future__ import annotations

import logging
import threading

from trainwright.api import names
from trainwright.api.conditions import is_true
from trainwright.api.errors import ApiError
from trainwright.api.kinds import JOBSET
from trainwright.api.objects import Obj, annotations_of, name_of, namespace_of, uid_of
from trainwright.backoff import Backoff
from trainwright.cluster.protocol import Cluster
from trainwright.cluster.retrying import RetryingCluster
from trainwright.jobs.diagnosis.errors import Preempted, RunTimeout, TrainJobFailed
from trainwright.jobs.diagnosis.exit_codes import is_permanent
from trainwright.jobs.diagnosis.failure_class import error_class
from trainwright.jobs.diagnosis.report import report_of
from trainwright.jobs.state.attempts import preemptions_so_far, retries_so_far, was_preempted, with_mark, write_mark

RESUBMISSION = Backoff(10.0, 60.0, jitter=0.2)
"""Before a job is submitted again: capacity for its pods is unlikely to be free at once."""
log = logging.getLogger(__name__)


def wait_to_resume(cluster: Cluster, error: Preempted, budget: int, stop: threading.Event) -> bool:
    """Record the preemption of a failed job, and wait before its step is resubmitted.

    Returns False if `stop` ended the wait. Raises Preempted if the budget is exhausted or the preemption cannot be recorded.
    """
    trainjob = error.trainjob
    try:
        used = preemptions_so_far(write_mark(RetryingCluster(cluster, stop=stop), trainjob, names.PREEMPTED_ANNOTATION))
    except ApiError as cause:  # unrecorded, it would count for no budget
        raise _with_message(error, f"it is not resubmitted because the preemption cannot be recorded: {cause.message}") from error
    if used > budget:
        text = f"its preemption budget of {budget} resubmissions is exhausted" if budget else ""
        raise _with_message(error, text) from None
    seconds = RESUBMISSION.pause(used)
    log.warning(
        "event=trainjob_preempted name=%s preemptions=%d budget=%d resubmit_seconds=%.0f",
        name_of(trainjob),
        used,
        budget,
        seconds,
    )
    return not stop.wait(seconds)


def _with_message(error: Preempted, text: str) -> Preempted:
    return Preempted(f"{error}\n{text}" if text else str(error), error.trainjob, error.report)


def mark_if_preempted(cluster: Cluster, trainjob: Obj) -> Obj:
    """Annotate a job that failed by preemption; returns the job. If it cannot be changed, only the returned copy is annotated."""
    if not is_true(trainjob, "Failed") or was_preempted(trainjob):  # nothing to mark, or marked already
        return trainjob
    if not issubclass(error_class(report_of(cluster, trainjob)), Preempted):
        return trainjob
    try:
        return write_mark(cluster, trainjob, names.PREEMPTED_ANNOTATION)
    except ApiError as error:  # the attempt that follows is submitted all the same, and stores the count
        log.warning("event=preemption_not_recorded name=%s error=%s", name_of(trainjob), error.message)
        return with_mark(trainjob, names.PREEMPTED_ANNOTATION)


def jobsets_to_resume_from(cluster: Cluster, ended: Obj) -> str:
    """Return the comma-separated UIDs of the JobSets of a job to continue and of those it resumed from.

    The next attempt resumes from their checkpoints. A JobSet that cannot be read is omitted, with a warning; its checkpoints are
    then archived.
    """
    earlier = annotations_of(ended).get(names.RESUMES_FROM_ANNOTATION) or ""
    try:
        own = uid_of(cluster.get(JOBSET, name_of(ended), namespace_of(ended)))
    except ApiError as error:
        log.warning("event=earlier_jobset_not_read name=%s error=%s", name_of(ended), error.message)
        return earlier
    return ",".join(filter(None, (own, earlier)))


def may_retry(error: TrainJobFailed) -> bool:
    """Whether a failed job may be submitted again.

    Not if its failure is deterministic, see `is_permanent`, nor at its deadline, which a retry would begin anew. A preemption has a
    budget apart.
    """
    return not isinstance(error, Preempted | RunTimeout) and not is_permanent(error)


def wait_to_retry(cluster: Cluster, error: TrainJobFailed, retries: int, stop: threading.Event) -> bool:
    """Record that a failed job is submitted again, and wait before that.

    Returns False if `stop` ended the wait. The error gets a note if it is to be raised after all: the `retries` are used up, a retry
    cannot succeed, or it cannot be recorded. It is raised then.
    """
    if not may_retry(error):
        if not isinstance(error, Preempted):  # preemptions have another budget
            error.add_note(f"limits.job_retries={retries} is not used: such a failure is not retried")
        raise error
    trainjob = error.trainjob
    try:
        used = retries_so_far(write_mark(RetryingCluster(cluster, stop=stop), trainjob, names.RETRIED_ANNOTATION))
    except ApiError as cause:  # unrecorded, it would count for no budget
        error.add_note(f"it is not submitted again because this cannot be recorded: {cause.message}")
        raise error from cause
    if used > retries:
        error.add_note(f"its retries are used up: limits.job_retries={retries}")
        raise error
    seconds = RESUBMISSION.pause(used)
    log.warning(
        "event=trainjob_retried name=%s retries=%d allowed=%d resubmit_seconds=%.0f", name_of(trainjob), used, retries, seconds
    )
    return not stop.wait(seconds)
