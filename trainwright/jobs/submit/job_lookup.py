"""Finds the jobs of a step or a run, in the submission mode of this connection and in the other.

The mode that `auto` selects may have changed since a job was created: Trainer was installed, or its controller was removed. Such a
job is followed and cancelled in its own mode.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

from trainwright.api import names
from trainwright.api.errors import ApiError, Forbidden, NotFound
from trainwright.api.kinds import JOBSET, TRAINJOB
from trainwright.api.objects import Obj, name_of
from trainwright.cluster.protocol import Cluster
from trainwright.cluster.retrying import RetryingCluster
from trainwright.jobs.diagnosis.resubmission import mark_if_preempted
from trainwright.jobs.state.attempts import attempt_of, attempts_of, needs_new_attempt
from trainwright.jobs.state.identity import Identity
from trainwright.jobs.state.run_folder import label_value
from trainwright.submission.jobs_client import JobsClient

_CACHE_SECONDS = 300.0
_EMPTY_NAMESPACES: WeakKeyDictionary[JobsClient, dict[str, float]] = WeakKeyDictionary()
"""For each connection, namespaces without jobs in jobset mode, and the time of the check (monotonic clock)."""
log = logging.getLogger(__name__)


class LocatedJob(NamedTuple):
    """A job, and the client in the job's submission mode."""

    cluster: JobsClient
    trainjob: Obj


class SubmissionStart(NamedTuple):
    """The client in the mode to use, the first attempt to consider, the existing jobs of the step, and the previous attempt
    if it was submitted in the other mode."""

    client: JobsClient
    attempt: int = 1
    jobs: Sequence[Obj] = ()
    previous: Obj | None = None


def submission_start(client: JobsClient, identity: Identity, namespace: str, stop: threading.Event | None) -> SubmissionStart:
    """Return where the submission of a step starts: at the newest existing attempt, since earlier ones may have been deleted."""
    for candidate, jobs in _found(
        client, namespace, lambda each: attempts_of(RetryingCluster(each, stop=stop), identity, namespace)
    ):
        if not jobs:
            continue
        newest = max(jobs, key=attempt_of)
        if candidate is not client:
            if needs_new_attempt(newest):
                previous = mark_if_preempted(RetryingCluster(candidate, stop=stop), newest)
                return SubmissionStart(client, attempt_of(newest) + 1, previous=previous)
            log.warning("event=job_found_in_other_mode name=%s mode=%s", name_of(newest), candidate.mode)
        return SubmissionStart(candidate, attempt_of(newest), jobs)
    return SubmissionStart(client)


def find_job(cluster: Cluster, identity: Identity, namespace: str) -> LocatedJob | None:
    """Return the newest TrainJob of this step, in any state; None if there is none. Raises ApiError."""
    for client, jobs in _found(JobsClient.of(cluster), namespace, lambda each: attempts_of(each, identity, namespace)):
        if jobs:
            return LocatedJob(client, max(jobs, key=attempt_of))
    return None


def jobs_of_run(cluster: Cluster, run: str, namespace: str) -> list[LocatedJob]:
    """Return the TrainJobs of all steps of runs with that name, of any owner. Raises ApiError."""
    return labelled_jobs(cluster, {names.RUN_LABEL: label_value(run)}, namespace)


def labelled_jobs(cluster: Cluster, labels: Mapping[str, str], namespace: str) -> list[LocatedJob]:
    """Return the TrainJobs that have all these labels. Raises ApiError."""
    selector = ",".join(f"{key}={value}" for key, value in labels.items())
    found = _found(JobsClient.of(cluster), namespace, lambda each: each.list(TRAINJOB, namespace, label_selector=selector).items)
    return [LocatedJob(client, job) for client, jobs in found for job in jobs]


def _found(client: JobsClient, namespace: str, find: Callable[[JobsClient], list[Obj]]) -> Iterator[tuple[JobsClient, list[Obj]]]:
    """Yield the client with the jobs that it finds, then the client in the other mode if jobs may exist there."""
    yield client, find(client)
    if client.other is None or _is_known_empty(client.other, namespace):
        return
    try:
        jobs = find(client.other)
    except (Forbidden, NotFound) as error:  # without the API or the permission of the other mode there are no jobs in it
        log.debug("event=other_mode_not_listed error=%s", error.message)
        return
    yield client.other, jobs


def _is_known_empty(other: JobsClient, namespace: str) -> bool:
    """Whether the namespace has no jobs that are stored as JobSets, the usual case: cached for _CACHE_SECONDS."""
    if other.job_kind != JOBSET:
        return False
    known = _EMPTY_NAMESPACES.setdefault(other, {})
    if time.monotonic() - known.get(namespace, -_CACHE_SECONDS) < _CACHE_SECONDS:
        return True
    try:
        found = bool(other.list(TRAINJOB, namespace).items)
    except ApiError as error:  # the lookup of the step's own jobs is retried
        log.debug("event=other_mode_not_checked error=%s", error.message)
        return False
    if not found:
        known[namespace] = time.monotonic()
    return not found
