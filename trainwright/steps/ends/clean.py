"""Stops the jobs that a run has left running, and finds the Secrets of steps whose submitter was killed before their job had them.

A run leaves jobs when it was terminated, it failed, or the step that waited was killed. Nothing owns the Secrets of such steps, so
nothing deletes them. To find them is to read Secrets, which no client of a run may: it is for a person with the rights of one who
keeps the namespace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial

from trainwright.api import names
from trainwright.api.errors import ApiError, Conflict, NotFound
from trainwright.api.kinds import SECRET, TRAINJOB
from trainwright.api.objects import Obj, annotations_of, is_deleting, labels_of, name_of, namespace_of, uid_of
from trainwright.api.phase import Phase, phase_of
from trainwright.api.times import parse_time
from trainwright.cluster.protocol import Cluster
from trainwright.cluster.retrying import RetryingCluster
from trainwright.jobs.state.cancel import CancelPolicy, cancel_owned_job
from trainwright.jobs.state.left_behind import Sight, decide, look
from trainwright.jobs.state.run_folder import label_value
from trainwright.jobs.submit.submission import SUFFIX

SUBMISSION = timedelta(minutes=15)
"""How long a submission may take from its Secret to its job; one that is younger is not left over."""


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
        # Younger than the age that was asked for.
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
        except ApiError as error:  # the other jobs are stopped all the same
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


@dataclass(frozen=True)
class LeftCredentials:
    """A Secret without owner whose job does not exist or has ended. It has no values."""

    name: str
    namespace: str
    uid: str
    created: str
    outcome: str = ""
    failed: bool = False


def left_credentials(
    cluster: Cluster, namespace: str | None, *, run: str = "", older_than: timedelta | None = None
) -> list[LeftCredentials]:
    """Return the Secrets that are left over, of `run` if it is given, oldest first; of all namespaces with None.

    Raises ApiError; Forbidden without the right to list Secrets.
    """
    retrying, labels = RetryingCluster(cluster), f"{names.MANAGED_BY_LABEL}=trainwright,{names.STEP_LABEL}"
    secrets = retrying.list(SECRET, namespace, label_selector=labels).items
    jobs = retrying.list(TRAINJOB, namespace, label_selector=f"{names.MANAGED_BY_LABEL}=trainwright").items
    unfinished = {(namespace_of(job), name_of(job)) for job in jobs if not phase_of(job).is_final}
    latest = datetime.now(UTC) - max(older_than or SUBMISSION, SUBMISSION)
    found = [
        LeftCredentials(name_of(secret), namespace_of(secret), uid_of(secret), str(secret["metadata"]["creationTimestamp"]))
        for secret in secrets
        if _is_left(secret, unfinished, latest) and (not run or labels_of(secret).get(names.RUN_LABEL) == label_value(run))
    ]
    return sorted(found, key=lambda each: each.created)


def _is_left(secret: Obj, unfinished: set[tuple[str, str]], latest: datetime) -> bool:
    metadata, name = secret["metadata"], name_of(secret)
    if metadata.get("ownerReferences") or not name.endswith(SUFFIX) or parse_time(metadata["creationTimestamp"]) > latest:
        return False
    return (namespace_of(secret), name.removesuffix(SUFFIX)) not in unfinished


def delete_left(cluster: Cluster, left: list[LeftCredentials]) -> Iterator[LeftCredentials]:
    """Delete the Secrets, each unless another has taken its name; yield what became of each."""
    retrying = RetryingCluster(cluster)
    for each in left:
        try:
            retrying.delete(SECRET, each.name, each.namespace, uid=each.uid)
            yield replace(each, outcome="deleted")
        except (NotFound, Conflict):  # deleted or changed by somebody else since it was listed
            yield replace(each, outcome="gone already")
        except ApiError as error:
            yield replace(each, outcome=f"it could not be deleted: {error.message}", failed=True)
