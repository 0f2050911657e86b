"""Suspends, resumes or deletes TrainJobs of an orchestrator: one by its name, or those that a run has submitted.

A second call finds the work done, so that a step which does this can be retried.
"""

from __future__ import annotations

import enum
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from trainwright.api import names
from trainwright.api.conditions import is_finished
from trainwright.api.errors import ApiError, NotFound
from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import Obj, annotations_of, is_deleting, name_of, namespace_of, uid_of
from trainwright.api.phase import phase_of
from trainwright.cluster.protocol import Cluster
from trainwright.cluster.retrying import RetryingCluster
from trainwright.jobs.diagnosis.errors import TrainJobError
from trainwright.jobs.state.attempts import needs_new_attempt
from trainwright.jobs.state.cancel import CancelOutcome, CancelPolicy, CancelResult, cancel_job, delete_job
from trainwright.jobs.submit.job_lookup import LocatedJob, labelled_jobs
from trainwright.jobs.wait.resume_job import ResumeOutcome, resume_job
from trainwright.submission.jobs_client import JobsClient
from trainwright.submission.suspension import is_queued

log = logging.getLogger(__name__)


class JobChange(enum.StrEnum):
    """What to do with the jobs."""

    suspend = "suspend"
    resume = "resume"
    delete = "delete"


class PodsRemain(TrainJobError):
    """Jobs were suspended or deleted, but their pods still run, or could not be checked."""

    retryable = True


class JobSuperseded(TrainJobError, ValueError):
    """A job is not resumed, because its step has another one. A retry cannot succeed."""


@dataclass(frozen=True)
class ChangedJob:
    """A job, and what was done with it as text."""

    name: str
    namespace: str
    outcome: str


def job_named(cluster: Cluster, name: str, namespace: str) -> LocatedJob | None:
    """Return the job in the submission mode of `cluster`, else in the other one; None if there is none. Raises ApiError."""
    client = JobsClient.of(cluster)
    try:
        return LocatedJob(client, RetryingCluster(client).get(TRAINJOB, name, namespace))
    except NotFound:
        if client.other is None:  # there is no other mode to look in
            return None
    try:
        return LocatedJob(client.other, client.other.get(TRAINJOB, name, namespace))
    except ApiError as error:  # without the API or the permission of the other mode there is no job in it
        log.debug("event=other_mode_not_read error=%s", error.message)
        return None


def jobs_to_change(
    cluster: Cluster, change: JobChange, *, labels: Iterable[Mapping[str, str]], submitter: str, namespace: str
) -> list[LocatedJob]:
    """Return the jobs with any of these sets of labels whose `submitter` begins so, as `airflow/DAG/`, and that `change` can apply to.

    That are unfinished jobs to suspend, suspended ones to resume unless they have failed, and all to delete. Raises ApiError.
    """
    found = {uid_of(each.trainjob): each for these in labels for each in labelled_jobs(cluster, these, namespace)}
    own = [each for each in found.values() if annotations_of(each.trainjob).get(names.OWNER_ANNOTATION, "").startswith(submitter)]
    return [each for each in own if _applies(change, each.trainjob)]


def _applies(change: JobChange, trainjob: Obj) -> bool:
    if change is JobChange.delete:  # also of a job that has ended: its status goes, too
        return True
    if is_deleting(trainjob):  # it is past both
        return False
    if change is JobChange.suspend:
        return not phase_of(trainjob).is_final
    return bool(trainjob["spec"].get("suspend")) and not (is_finished(trainjob) or needs_new_attempt(trainjob))


def change_jobs(jobs: Iterable[LocatedJob], change: JobChange, *, pod_timeout_seconds: float = 0.0) -> list[ChangedJob]:
    """Apply a change to all jobs, then wait for the pods of those that it stops, for `pod_timeout_seconds` in total; 0 does not wait.

    An error with one job does not keep the others from being changed. Transient errors are retried, for a minute.
    Raises the first ApiError at the end, JobSuperseded, and PodsRemain after the time.
    """
    located = list(jobs)
    apply, results, errors = _CHANGES[change], dict[int, CancelResult | ResumeOutcome](), list[ApiError | JobSuperseded]()
    for number, job in enumerate(located):
        try:
            results[number] = apply(job, 0.0)
        except (ApiError, JobSuperseded) as error:  # the others are changed all the same; the errors are raised at the end
            log.error("event=job_not_changed change=%s name=%s error=%s", change, name_of(job.trainjob), error)
            errors.append(error)
    if errors:
        raise errors[0]
    if pod_timeout_seconds > 0:
        _wait_for_pods(located, results, apply, pod_timeout_seconds)
    return [
        ChangedJob(name_of(job.trainjob), namespace_of(job.trainjob), _text(results[number]))
        for number, job in enumerate(located)
    ]


def _wait_for_pods(
    located: list[LocatedJob],
    results: dict[int, CancelResult | ResumeOutcome],
    apply: Callable[[LocatedJob, float], CancelResult | ResumeOutcome],
    seconds: float,
) -> None:
    deadline, remaining = time.monotonic() + seconds, []
    for number, job in enumerate(located):
        if not _pods_message(results[number]):
            continue
        results[number] = apply(job, max(0.0, deadline - time.monotonic()))
        if message := _pods_message(results[number]):
            remaining.append(f"TrainJob {namespace_of(job.trainjob)}/{name_of(job.trainjob)}: {message}")
    if remaining:
        raise PodsRemain(f"after {seconds:g} s, {'; '.join(remaining)}")


def _pods_message(result: CancelResult | ResumeOutcome) -> str:
    return result.pods_message() if isinstance(result, CancelResult) else ""


def _text(result: CancelResult | ResumeOutcome) -> str:
    return result.value if isinstance(result, ResumeOutcome) else str(result)


def _suspend(job: LocatedJob, timeout_seconds: float) -> CancelResult:
    if is_queued(job.trainjob):  # suspended is how it waits in its queue
        return CancelResult(CancelOutcome.queued)
    return cancel_job(RetryingCluster(job.cluster), job.trainjob, CancelPolicy.suspend, timeout_seconds=timeout_seconds)


def _resume(job: LocatedJob, _timeout_seconds: float) -> ResumeOutcome:
    outcome = resume_job(RetryingCluster(job.cluster), job.trainjob)
    if outcome is ResumeOutcome.superseded:
        raise JobSuperseded(f"TrainJob {namespace_of(job.trainjob)}/{name_of(job.trainjob)}: {outcome}")
    return outcome


def _delete(job: LocatedJob, timeout_seconds: float) -> CancelResult:
    """Delete a job, also one that has ended: unlike a cancellation this says that its status is of no more interest."""
    result = cancel_job(RetryingCluster(job.cluster), job.trainjob, CancelPolicy.delete, timeout_seconds=timeout_seconds)
    if result.outcome is not CancelOutcome.ended:  # only a job that has ended is left by a cancellation
        return result
    return CancelResult(CancelOutcome.deleted if delete_job(RetryingCluster(job.cluster), job.trainjob) else CancelOutcome.gone)


_CHANGES: dict[JobChange, Callable[[LocatedJob, float], CancelResult | ResumeOutcome]] = {
    JobChange.suspend: _suspend,
    JobChange.resume: _resume,
    JobChange.delete: _delete,
}
