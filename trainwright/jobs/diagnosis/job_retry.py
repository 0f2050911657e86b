"""Resubmits a failed job as its next attempt, which resumes from its checkpoint, within a budget of its step (`job_retries`).

For Kubeflow Pipelines, whose servers do not retry a failed step as installed. A failure that would only repeat is not retried.
"""

from __future__ import annotations

import logging
import threading

from trainwright.api import names
from trainwright.api.errors import ApiError
from trainwright.api.objects import name_of
from trainwright.cluster.protocol import Cluster
from trainwright.cluster.retrying import RetryingCluster
from trainwright.jobs.diagnosis.errors import Preempted, RunTimeout, TrainJobFailed
from trainwright.jobs.diagnosis.exit_codes import is_permanent
from trainwright.jobs.diagnosis.preemption import RESUBMISSION
from trainwright.jobs.state.attempts import retries_so_far, write_mark

log = logging.getLogger(__name__)


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
        if not isinstance(error, Preempted):
            error.add_note(f"limits.job_retries={retries} is not used: such a failure is not retried")
        raise error
    trainjob = error.trainjob
    try:
        used = retries_so_far(write_mark(RetryingCluster(cluster, stop=stop), trainjob, names.RETRIED_ANNOTATION))
    except ApiError as cause:
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
