"""Resubmits a preempted job as its next attempt, within a budget that is separate from the orchestrator's retries.

The count is stored on the TrainJobs: a preempted one is annotated, and each new one stores the number before it. Neither a client
crash nor the deletion of earlier attempts resets the count, and no preemption is counted twice.
"""

from __future__ import annotations

import logging
import random
import threading

from trainwright.api import names
from trainwright.api.conditions import is_true
from trainwright.api.errors import ApiError, Conflict, NotFound
from trainwright.api.kinds import JOBSET, TRAINJOB
from trainwright.api.objects import Obj, annotations_of, name_of, namespace_of, stored_annotation, uid_of
from trainwright.cluster.protocol import Cluster
from trainwright.cluster.retrying import RetryingCluster
from trainwright.jobs.diagnosis.errors import Preempted
from trainwright.jobs.diagnosis.failure_class import error_class
from trainwright.jobs.diagnosis.report import report_of
from trainwright.jobs.state.attempts import preemptions_so_far

BUDGET = 3
"""Default for `preemption_budget`."""
INITIAL_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS = 10.0, 60.0
"""Exponential backoff with jitter: capacity for the pods is unlikely to be free at once."""
_MARK = {names.PREEMPTED_ANNOTATION: "true"}
_MAX_TRIES = 10
log = logging.getLogger(__name__)


def wait_to_resume(cluster: Cluster, error: Preempted, budget: int, stop: threading.Event) -> bool:
    """Record the preemption of a failed job, and wait before its step is resubmitted.

    Returns False if `stop` ended the wait. Raises Preempted if the budget is exhausted or the preemption cannot be recorded.
    """
    trainjob = error.trainjob
    try:
        used = preemptions_so_far(_write_mark(RetryingCluster(cluster, stop=stop), trainjob))
    except ApiError as cause:
        raise _with_message(error, f"it is not resubmitted because the preemption cannot be recorded: {cause.message}") from error
    if used > budget:
        text = f"its preemption budget of {budget} resubmissions is exhausted" if budget else ""
        raise _with_message(error, text) from None
    seconds = min(MAX_BACKOFF_SECONDS, INITIAL_BACKOFF_SECONDS * 2 ** (used - 1)) * random.uniform(0.8, 1.0)
    log.warning(
        "event=trainjob_preempted name=%s preemptions=%d budget=%d resubmit_seconds=%.0f",
        name_of(trainjob),
        used,
        budget,
        seconds,
    )
    return not stop.wait(seconds)


def mark_if_preempted(cluster: Cluster, trainjob: Obj) -> Obj:
    """Annotate a job that failed by preemption; returns the job. If it cannot be changed, only the returned copy is annotated."""
    if not is_true(trainjob, "Failed") or was_preempted(trainjob):
        return trainjob
    if not issubclass(error_class(report_of(cluster, trainjob)), Preempted):
        return trainjob
    try:
        return _write_mark(cluster, trainjob)
    except ApiError as error:
        log.warning("event=preemption_not_recorded name=%s error=%s", name_of(trainjob), error.message)
        return _with_mark(trainjob)


def was_preempted(trainjob: Obj) -> bool:
    """Whether the job is annotated as preempted."""
    return names.PREEMPTED_ANNOTATION in annotations_of(trainjob)


def jobsets_to_resume_from(cluster: Cluster, preempted: Obj) -> str:
    """Return the comma-separated UIDs of the JobSets of a preempted job and of those it resumed from.

    The next attempt resumes from their checkpoints. A JobSet that cannot be read is omitted, with a warning; its checkpoints are
    then archived.
    """
    earlier = stored_annotation(preempted, names.RESUMES_FROM_ANNOTATION) or ""
    try:
        own = uid_of(cluster.get(JOBSET, name_of(preempted), namespace_of(preempted)))
    except ApiError as error:
        log.warning("event=preempted_jobset_not_read name=%s error=%s", name_of(preempted), error.message)
        return earlier
    return ",".join(filter(None, (own, earlier)))


def _write_mark(cluster: Cluster, trainjob: Obj) -> Obj:
    """Annotate the job with this UID; returns an annotated copy if it no longer exists. Idempotent. Raises ApiError."""
    for _ in range(_MAX_TRIES):
        try:
            current = cluster.get(TRAINJOB, name_of(trainjob), namespace_of(trainjob))
            if uid_of(current) != uid_of(trainjob):
                return _with_mark(trainjob)
            metadata = {"resourceVersion": current["metadata"]["resourceVersion"], "annotations": _MARK}
            return cluster.patch(TRAINJOB, name_of(trainjob), {"metadata": metadata}, namespace_of(trainjob))
        except NotFound:
            return _with_mark(trainjob)
        except Conflict:  # its status changed in the meantime
            continue
    raise Conflict(f"TrainJob {name_of(trainjob)} changed {_MAX_TRIES} times while its preemption was being recorded")


def _with_mark(trainjob: Obj) -> Obj:
    return {**trainjob, "metadata": {**trainjob["metadata"], "annotations": {**annotations_of(trainjob), **_MARK}}}


def _with_message(error: Preempted, text: str) -> Preempted:
    return Preempted(f"{error}\n{text}" if text else str(error), error.trainjob, error.report)
