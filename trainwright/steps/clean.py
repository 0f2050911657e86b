"""Stops the jobs that a run has left running: it was terminated, it failed, or the step that waited was killed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial

from trainwright.api import names
from trainwright.api.errors import ApiError
from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import Obj, annotations_of, is_deleting, labels_of, name_of, namespace_of
from trainwright.api.phase import Phase, phase_of
from trainwright.api.times import parse_time
from trainwright.cluster.protocol import Cluster
from trainwright.cluster.retrying import RetryingCluster
from trainwright.jobs.state.cancel import CancelPolicy, cancel_owned_job
from trainwright.jobs.state.left_behind import Sight, decide, look
from trainwright.jobs.state.run_folder import label_value


@dataclass(frozen=True)
class LeftJobs:
    """Which unfinished jobs are left over: those of a `run` (of this `owner`, such as `kfp`; empty for any), of a `workflow`, or with
    these `labels`; those created before `older_than`; with `abandoned` those that nobody waits for. What is set must all hold,
    but of run, workflow and labels one is enough.
    """

    run: str = ""
    owner: str = ""
    workflow: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    older_than: timedelta | None = None
    abandoned: bool = False

    def matches(self, trainjob: Obj, now: datetime, sight: Callable[[Obj], Sight]) -> bool:
        """Whether a job is left over, and not ended or being deleted. `sight` tells who waits for it. Raises ApiError."""
        if phase_of(trainjob).is_final or is_deleting(trainjob) or not annotations_of(trainjob).get(names.OWNER_ANNOTATION):
            return False
        if (self.run or self.workflow or self.labels) and not (
            self._is_of_run(trainjob) or self._is_of_workflow(trainjob) or self._has_labels(trainjob)
        ):
            return False
        if self.older_than is not None and parse_time(trainjob["metadata"]["creationTimestamp"]) > now - self.older_than:
            return False
        return not self.abandoned or decide(trainjob, sight, now).policy is not None

    def _is_of_run(self, trainjob: Obj) -> bool:
        if not self.run or labels_of(trainjob).get(names.RUN_LABEL) != label_value(self.run):
            return False
        submitter = annotations_of(trainjob)[names.OWNER_ANNOTATION]
        return submitter.startswith(f"{self.owner}/{self.run}/") if self.owner else f"/{self.run}/" in submitter

    def _has_labels(self, trainjob: Obj) -> bool:
        return bool(self.labels) and self.labels.items() <= labels_of(trainjob).items()

    def _is_of_workflow(self, trainjob: Obj) -> bool:
        return bool(self.workflow) and labels_of(trainjob).get(names.WORKFLOW_LABEL) == label_value(self.workflow)


@dataclass(frozen=True)
class CleanedJob:
    """A job, its submitter and phase, and what was done with it as text; `failed` if it may still be running."""

    name: str
    namespace: str
    submitter: str
    phase: Phase
    created: str
    outcome: str
    failed: bool = False


def left_jobs(cluster: Cluster, namespace: str | None, left: LeftJobs) -> list[Obj]:
    """Return the jobs that are left over, oldest first; of all namespaces with None. Raises ApiError."""
    selector = f"{names.MANAGED_BY_LABEL}=trainwright"
    found = RetryingCluster(cluster).list(TRAINJOB, namespace, label_selector=selector).items
    now = datetime.now(UTC)
    sight = partial(look, RetryingCluster(cluster))
    return sorted(
        (job for job in found if left.matches(job, now, sight)), key=lambda job: str(job["metadata"]["creationTimestamp"])
    )


def clean(cluster: Cluster, jobs: list[Obj], policy: CancelPolicy, *, timeout_seconds: float = 0.0) -> Iterator[CleanedJob]:
    """Cancel the jobs one after the other; yield what became of each. An error with one does not keep the others running.

    Transient errors are retried, for a minute in total. `timeout_seconds` is the time to wait for the pods of each job.
    Suspended jobs are resumed when their step is run again.
    """
    retrying = RetryingCluster(cluster)
    for job in jobs:
        try:
            yield described(job, cancel_owned_job(retrying, job, policy, timeout_seconds=timeout_seconds))
        except ApiError as error:
            yield described(job, f"it could not be stopped: {error.message}", failed=True)


def suspend_abandoned(cluster: Cluster, namespace: str) -> Iterator[CleanedJob]:
    """Suspend the jobs of a namespace that nobody waits for any more; yield what became of each.

    For clusters without a guard and without a controller of Trainwright, which do this at the time. Raises ApiError.
    """
    yield from clean(cluster, left_jobs(cluster, namespace, LeftJobs(abandoned=True)), CancelPolicy.suspend)


def described(trainjob: Obj, outcome: str = "", *, failed: bool = False) -> CleanedJob:
    """Return a job as it is shown."""
    return CleanedJob(
        name_of(trainjob),
        namespace_of(trainjob),
        annotations_of(trainjob).get(names.OWNER_ANNOTATION, ""),
        phase_of(trainjob),
        str(trainjob["metadata"]["creationTimestamp"]),
        outcome,
        failed,
    )
