"""Finds the jobs of a step or a run, in the submission mode of this connection and in the other.

The mode that `auto` selects may have changed since a job was created: Trainer was installed, or its controller was removed. Such a
job is followed and cancelled in its own mode.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

from trainwright.api import names
from trainwright.api.errors import ApiError, Forbidden, NotFound
from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import Obj, name_of
from trainwright.cluster.protocol import Cluster
from trainwright.cluster.retrying import RetryingCluster
from trainwright.jobs.diagnosis.preemption import mark_if_preempted
from trainwright.jobs.state.attempts import attempt_of, attempts_of, needs_new_attempt
from trainwright.jobs.state.identity import Identity
from trainwright.jobs.state.label_values import label_value
from trainwright.submission.jobs_client import JobsClient
from trainwright.submission.mode import Mode

_CACHE_SECONDS = 300.0
_EMPTY_NAMESPACES: WeakKeyDictionary[JobsClient, dict[str, float]] = WeakKeyDictionary()
"""For each connection, namespaces without jobs in jobset mode, and the time of the check (monotonic clock)."""
log = logging.getLogger(__name__)


class LocatedJob(NamedTuple):
    """A job, and the cluster in the job's submission mode."""

    cluster: Cluster
    trainjob: Obj


class SubmissionStart(NamedTuple):
    """The cluster in the mode to use, the first attempt to consider, the existing jobs of the step, and the previous attempt
    if it was submitted in the other mode."""

    cluster: Cluster
    attempt: int = 1
    jobs: Sequence[Obj] = ()
    previous: Obj | None = None


def submission_start(cluster: Cluster, identity: Identity, namespace: str, stop: threading.Event | None) -> SubmissionStart:
    """Return where the submission of a step starts: at the newest existing attempt, since earlier ones may have been deleted."""
    for candidate in _clusters(cluster, namespace):
        retrying = RetryingCluster(candidate, stop=stop)
        jobs = _jobs(retrying, identity, namespace, is_requested_mode=candidate is cluster)
        if not jobs:
            continue
        newest = max(jobs, key=attempt_of)
        if candidate is cluster:
            return SubmissionStart(cluster, attempt_of(newest), jobs)
        if needs_new_attempt(newest):
            return SubmissionStart(cluster, attempt_of(newest) + 1, previous=mark_if_preempted(retrying, newest))
        mode = JobsClient.of(candidate).mode
        log.warning("event=job_found_in_other_mode name=%s mode=%s", name_of(newest), mode)
        return SubmissionStart(candidate, attempt_of(newest), jobs)
    return SubmissionStart(cluster)


def find_job(cluster: Cluster, identity: Identity, namespace: str) -> LocatedJob | None:
    """Return the newest TrainJob of this step, in any state; None if there is none. Raises ApiError."""
    for candidate in _clusters(cluster, namespace):
        if jobs := _jobs(candidate, identity, namespace, is_requested_mode=candidate is cluster):
            return LocatedJob(candidate, max(jobs, key=attempt_of))
    return None


def jobs_of_run(cluster: Cluster, run: str, namespace: str) -> list[LocatedJob]:
    """Return the TrainJobs of all steps of runs with that name, of any owner. Raises ApiError."""
    return labelled_jobs(cluster, {names.RUN_LABEL: label_value(run)}, namespace)


def labelled_jobs(cluster: Cluster, labels: Mapping[str, str], namespace: str) -> list[LocatedJob]:
    """Return the TrainJobs that have all these labels. Raises ApiError."""
    selector, found = ",".join(f"{key}={value}" for key, value in labels.items()), list[LocatedJob]()
    for candidate in _clusters(cluster, namespace):
        try:
            found += [LocatedJob(candidate, job) for job in candidate.list(TRAINJOB, namespace, label_selector=selector).items]
        except (Forbidden, NotFound) as error:
            _ignore_in_other_mode(error, is_requested_mode=candidate is cluster)
    return found


def _clusters(cluster: Cluster, namespace: str) -> Iterator[Cluster]:
    """Yield the cluster in its mode, then in the other mode if jobs may exist there."""
    yield cluster
    if isinstance(cluster, JobsClient) and cluster.choice.could_differ:
        other = cluster.other_mode()
        if not _is_known_empty(cluster, other, namespace):
            yield other


def _is_known_empty(cluster: JobsClient, other: JobsClient, namespace: str) -> bool:
    """Whether the namespace has no jobs in jobset mode, the usual case: cached for _CACHE_SECONDS."""
    if other.mode is not Mode.jobset:
        return False
    known = _EMPTY_NAMESPACES.setdefault(cluster, {})
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


def _jobs(cluster: Cluster, identity: Identity, namespace: str, *, is_requested_mode: bool) -> list[Obj]:
    try:
        return attempts_of(cluster, identity, namespace)
    except (Forbidden, NotFound) as error:
        _ignore_in_other_mode(error, is_requested_mode=is_requested_mode)
        return []


def _ignore_in_other_mode(error: Forbidden | NotFound, *, is_requested_mode: bool) -> None:
    """Raise the error in the requested mode; in the other mode a missing permission or API means that there are no jobs."""
    if is_requested_mode:
        raise error
    log.debug("event=other_mode_not_listed error=%s", error.message)
