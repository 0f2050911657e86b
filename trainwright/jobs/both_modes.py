"""The jobs of a step or a run, in the mode of this connection and in the other.

What auto chooses may have changed since a job was made: Trainer was installed, or its controller has gone. A job of the other mode
is a job all the same: it is followed where it is, and stopped where it is.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

from trainwright.api import names
from trainwright.api.errors import ApiError, Forbidden, NotFound
from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import Obj, name_of
from trainwright.cluster.jobset_mode import JobSetCluster
from trainwright.cluster.patient import PatientCluster
from trainwright.cluster.protocol import Cluster
from trainwright.cluster.submission_mode import JobsCluster, choice_of, other_mode
from trainwright.jobs.generations import generation_of, generations_of, is_over
from trainwright.jobs.identity import Identity
from trainwright.jobs.label_values import label_value
from trainwright.jobs.preemption import judged

_REMEMBERED_SECONDS = 300.0
_WITHOUT: WeakKeyDictionary[JobsCluster, dict[str, float]] = WeakKeyDictionary()
"""The namespaces of a connection in which there was no job in jobset mode, and when that was so."""
log = logging.getLogger(__name__)


class Found(NamedTuple):
    """A job, and the cluster in the mode in which it is one."""

    cluster: Cluster
    trainjob: Obj


class Beginning(NamedTuple):
    """The cluster in the mode that counts, the first generation to look at, the jobs of the step that are there, and the one
    before where that was of the other mode."""

    cluster: Cluster
    generation: int = 1
    jobs: Sequence[Obj] = ()
    before: Obj | None = None


def beginning_of(cluster: Cluster, identity: Identity, namespace: str, stop: threading.Event | None) -> Beginning:
    """Where the submission of a step begins: with the newest generation that exists. Somebody may have deleted earlier ones."""
    for place in _places(cluster, namespace):
        patient = PatientCluster(place, stop=stop)
        jobs = _jobs(patient, identity, namespace, is_asked=place is cluster)
        if not jobs:
            continue
        newest = max(jobs, key=generation_of)
        if place is cluster:
            return Beginning(cluster, generation_of(newest), jobs)
        if is_over(newest):
            return Beginning(cluster, generation_of(newest) + 1, before=judged(patient, newest))
        mode = choice_of(place).mode
        log.warning("the job of this step was made in the mode %s and is followed there name=%s", mode, name_of(newest))
        return Beginning(place, generation_of(newest), jobs)
    return Beginning(cluster)


def find_job(cluster: Cluster, identity: Identity, namespace: str) -> Found | None:
    """The newest TrainJob of this step of this run, whatever its state; None where there is none. Makes nothing."""
    for place in _places(cluster, namespace):
        if jobs := _jobs(place, identity, namespace, is_asked=place is cluster):
            return Found(place, max(jobs, key=generation_of))
    return None


def jobs_of_run(cluster: Cluster, run: str, namespace: str) -> list[Found]:
    """The TrainJobs of all steps of runs of that name, whoever their owners are."""
    selector, found = f"{names.RUN_LABEL}={label_value(run)}", list[Found]()
    for place in _places(cluster, namespace):
        try:
            found += [Found(place, job) for job in place.list(TRAINJOB, namespace, label_selector=selector).items]
        except (Forbidden, NotFound) as error:
            _pass_over(error, is_asked=place is cluster)
    return found


def _places(cluster: Cluster, namespace: str) -> Iterator[Cluster]:
    """The cluster as it is connected, then in the other mode where a job can be there."""
    yield cluster
    if isinstance(cluster, JobsCluster) and choice_of(cluster).could_differ:
        other = other_mode(cluster)
        if not _has_none(cluster, other, namespace):
            yield other


def _has_none(cluster: JobsCluster, other: JobsCluster, namespace: str) -> bool:
    """Whether nobody has a job in jobset mode there, where most have none: asked once in a while, not at every submission."""
    if not isinstance(other, JobSetCluster):
        return False
    known = _WITHOUT.setdefault(cluster, {})
    if time.monotonic() - known.get(namespace, -_REMEMBERED_SECONDS) < _REMEMBERED_SECONDS:
        return True
    try:
        found = bool(other.list(TRAINJOB, namespace).items)
    except ApiError as error:  # asked for again, patiently, where it matters
        log.debug("not looked whether there are jobs of the other mode error=%s", error.message)
        return False
    if not found:
        known[namespace] = time.monotonic()
    return not found


def _jobs(cluster: Cluster, identity: Identity, namespace: str, *, is_asked: bool) -> list[Obj]:
    try:
        return generations_of(cluster, identity, namespace)
    except (Forbidden, NotFound) as error:
        _pass_over(error, is_asked=is_asked)
        return []


def _pass_over(error: Forbidden | NotFound, *, is_asked: bool) -> None:
    """Who may not look in the other mode has nothing there. Raises the error of the mode that was asked for."""
    if is_asked:
        raise error
    log.debug("not looked for jobs of the other mode error=%s", error.message)
