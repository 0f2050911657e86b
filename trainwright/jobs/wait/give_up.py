"""Gives up a TrainJob whose wait has ended early: stops it as asked, and records why, for everyone who looks at it."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import replace
from typing import Protocol

from trainwright.api.errors import ApiError
from trainwright.api.kinds import EVENT
from trainwright.api.objects import Obj, name_of, namespace_of, uid_of
from trainwright.api.times import now
from trainwright.api.verdict import Verdict
from trainwright.cluster.protocol import Cluster
from trainwright.cluster.retrying import RetryingCluster
from trainwright.jobs.credentials.credential_patterns import credential_in
from trainwright.jobs.diagnosis.errors import TrainJobFailed, verdict_on
from trainwright.jobs.state.cancel import CancelOutcome, cancel_by_suspending
from trainwright.submission.jobs_client import JobsClient

_SOURCE = "trainwright"
_RETRY_SECONDS = 15.0
"""For an API server that fails for a moment: a job that is not stopped runs on, and nobody waits for it."""
_MAX_MESSAGE = 1024
"""Characters of an Event's message."""
log = logging.getLogger(__name__)


class CancelHandler(Protocol):
    """Cancels a job when its wait ends early, because of a signal or an error; returns the outcome as text.

    `verdict` is what the error says of the job: it is recorded on a job that the handler suspends.
    """

    def __call__(self, cluster: Cluster, trainjob: Obj, verdict: Verdict | None = None, /) -> str: ...


def cancel_unwatched_job(cluster: Cluster, trainjob: Obj, how: CancelHandler, cause: BaseException | None = None) -> str:
    """Cancel a job whose wait ended early, by the error `cause` or a signal; returns the outcome as text, including an API error."""
    verdict = _without_credentials(verdict_on(cause)) if cause is not None else None
    # After a signal there is no time for retries, and the cluster may be ending as well.
    client = cluster if cause is None else RetryingCluster(cluster, seconds=_RETRY_SECONDS)
    try:
        outcome = how(client, trainjob) if verdict is None else how(client, trainjob, verdict)
    except ApiError as error:
        log.error("event=cancel_failed name=%s error=%s", name_of(trainjob), error.message)
        return f"it could not be stopped: {error.message}"
    if verdict is not None and outcome.startswith((CancelOutcome.suspended, CancelOutcome.given_up)):
        _publish_event(JobsClient.of(cluster), trainjob, verdict)
    return outcome


def stop_failing_job(cluster: Cluster, error: TrainJobFailed) -> str:
    """Stop a job whose pods fail again and again; returns the outcome. A retry of its step submits the next attempt."""
    outcome = cancel_unwatched_job(cluster, error.trainjob, cancel_by_suspending, error)
    log.info("event=failing_job_stopped name=%s outcome=%r", name_of(error.trainjob), outcome)
    return outcome


def _without_credentials(verdict: Verdict | None) -> Verdict | None:
    """Leave out lines with a credential: who may read the job may not be allowed to read logs."""
    if verdict is None:
        return None
    pods = tuple(replace(pod, message=_safe(pod.message), lines=tuple(map(_safe, pod.lines))) for pod in verdict.pods)
    return replace(verdict, message=_safe(verdict.message), pods=pods, lines=tuple(map(_safe, verdict.lines)))


def _safe(line: str) -> str:
    return line if (what := credential_in(line)) is None else f"(left out: {what})"


def _publish_event(cluster: JobsClient, trainjob: Obj, verdict: Verdict) -> None:
    """Create an Event about the job, or the JobSet that carries it. Without the permission, only the annotation says why."""
    digest = hashlib.sha256(f"{uid_of(trainjob)}/{verdict.time}/{verdict.reason}/{verdict.message}".encode()).hexdigest()[:16]
    moment, message = now(), f"given up by its client: {verdict.message}"
    event: Obj = {
        "apiVersion": EVENT.api_version,
        "kind": EVENT.kind,
        "metadata": {"name": f"{name_of(trainjob)}.{digest}", "namespace": namespace_of(trainjob)},
        "involvedObject": {
            "apiVersion": cluster.job_kind.api_version,
            "kind": cluster.job_kind.kind,
            "namespace": namespace_of(trainjob),
            "name": name_of(trainjob),
            "uid": uid_of(trainjob),
        },
        "type": "Warning",
        "reason": verdict.reason,
        "message": message if len(message) <= _MAX_MESSAGE else f"{message[: _MAX_MESSAGE - 4]} ...",
        "source": {"component": _SOURCE},
        "reportingComponent": _SOURCE,
        "firstTimestamp": moment,
        "lastTimestamp": moment,
        "count": 1,
    }
    try:
        cluster.create(event)
    except ApiError as error:
        log.debug("event=verdict_event_not_created name=%s error=%s", name_of(trainjob), error.message)
