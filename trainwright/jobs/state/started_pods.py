"""Which pods of a training have started once, and which have never: a quota or a full cluster may admit one of two.

The phase of a TrainJob does not tell: it is Running as soon as one Job of several is ready. All is read from the cluster, so that a
client that begins to wait later knows as much: from pods, also those that have ended, from what Jobs say of indexes whose pods are
gone, and from the counters of the JobSet.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

from trainwright.api import names
from trainwright.api.containers import run_ends
from trainwright.api.errors import ApiError, Forbidden, NotFound
from trainwright.api.integers import parse_indexes
from trainwright.api.kinds import JOBSET
from trainwright.api.objects import Obj, is_controlled_by, name_of, namespace_of, uid_of
from trainwright.cluster.protocol import Cluster
from trainwright.jobs.state.pods import Denials, Place, job_index_of, jobs_of, place_of, step_of

_NEVER_RAN = frozenset({"StartError", "ContainerCannotRun", "ContainerStatusUnknown"})
"""Reasons of containers that ended without having run, or of which a kubelet does not know it."""
_MOST_NAMED = 3
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GangStart:
    """How many pods a training needs at once, and the places of those that have never started."""

    expected: int
    missing: tuple[Place, ...] = ()

    @property
    def is_complete(self) -> bool:
        """Whether every pod has started once."""
        return not self.missing

    @property
    def is_partial(self) -> bool:
        """Whether some pods have started, but not all."""
        return 0 < len(self.missing) < self.expected

    def lacks(self, pod: Obj) -> bool:
        """Whether the pod is one of those that have never started."""
        return place_of(pod) in self.missing

    def describe(self) -> str:
        """Return a text such as `1 of 2 pods have not started: node-0-1`."""
        more = len(self.missing) - _MOST_NAMED
        named = ", ".join(map(str, self.missing[:_MOST_NAMED])) + (f" and {more} more" if more > 0 else "")
        return f"{len(self.missing)} of {self.expected} pods have not started: {named}"


class StartedPods:
    """Follows the pods of one training until all have started once; that is final. Not thread-safe."""

    def __init__(self, cluster: Cluster, trainjob: Obj):
        self._cluster, self._trainjob = cluster, trainjob
        self._started: set[Place] = set()
        self._forbidden = Denials()
        self._last: GangStart | None = None
        self._was_unreadable = False

    def read(self, pods: list[Obj], *, asks: bool = True) -> GangStart | None:
        """Return which pods have started, given those that exist; None if that is unknown.

        Without `asks`, for a job and pods that have not changed, it is the last answer. Unknown are a JobSet that does not exist yet,
        that may not or cannot be read, whose pods run on another cluster, or whose pods have no index.
        """
        if (asks or self._was_unreadable) and not (self._last is not None and self._last.is_complete):
            self._was_unreadable = False
            self._last = self._read(pods)
        return self._last

    def _read(self, pods: list[Obj]) -> GangStart | None:
        jobset = self._jobset()
        if jobset is None or (expected := expected_places(jobset)) is None:  # how many pods there should be is not known
            return None
        own = [pod for pod in pods if _created(pod) >= _created(jobset)]
        self._started |= {place_of(pod) for pod in own if has_started(pod)}
        ready = ready_steps(jobset)
        self._started |= {place for place in expected if place.step in ready}
        if expected - self._started - {place_of(pod) for pod in own}:
            self._started |= {place for job in self._jobs() for place in over_or_ready(job)}
        return GangStart(len(expected), tuple(sorted(expected - self._started)))

    def _jobset(self) -> Obj | None:
        """Return the JobSet of this job, not that of an earlier one of its name."""
        if "jobset" in self._forbidden:
            return None
        try:
            jobset = self._cluster.get(JOBSET, name_of(self._trainjob), namespace_of(self._trainjob))
        except ApiError as error:
            self._note("jobset", error)
            return None
        is_own = uid_of(jobset) == uid_of(self._trainjob) or is_controlled_by(jobset, self._trainjob)
        is_here = jobset["spec"].get("managedBy") in (None, names.JOBSET_CONTROLLER)
        return jobset if is_own and is_here else None

    def _jobs(self) -> list[Obj]:
        """Return the Jobs of the JobSet; none if they cannot be read."""
        if "jobs" in self._forbidden:
            return []
        try:
            return jobs_of(self._cluster, self._trainjob)
        except ApiError as error:
            self._note("jobs", error)
            return []

    def _note(self, what: str, error: ApiError) -> None:
        log.debug("event=start_not_read what=%s name=%s error=%s", what, name_of(self._trainjob), error.message)
        if isinstance(error, Forbidden):
            self._forbidden.note(what)
        self._was_unreadable = not isinstance(error, Forbidden | NotFound)


def expected_places(jobset: Obj) -> frozenset[Place] | None:
    """Return the places of the pods with which the training starts; None if pods have no index. Pure.

    Without initializers, and without steps that begin only when a step of the training has completed.
    """
    places: set[Place] = set()
    later: set[str] = set(names.INITIALIZERS)
    for entry in jobset["spec"].get("replicatedJobs") or []:
        step, spec = str(entry["name"]), entry["template"]["spec"]
        if step in names.INITIALIZERS:  # their pods run before the training, one after the other
            continue
        if any(_begins_later(dependency, later) for dependency in entry.get("dependsOn") or []):
            later.add(step)
            continue
        if spec.get("completionMode", "Indexed") != "Indexed":  # its pods have no index, and so no places
            return None
        replicas = int(entry.get("replicas", 1))
        places |= {Place(step, job, index) for job in range(replicas) for index in range(pods_at_once(spec))}
    return frozenset(places)


def _begins_later(dependency: Obj, later: set[str]) -> bool:
    """Whether a step with this dependency begins only after a step of the training."""
    name = dependency.get("name")
    if name in names.INITIALIZERS:  # they come before every training step
        return False
    return name in later or dependency.get("status") == "Complete"


def pods_at_once(job_spec: Obj) -> int:
    """Return how many pods of a Job run at once. Pure."""
    parallelism, completions = int(job_spec.get("parallelism", 1)), job_spec.get("completions")
    return parallelism if completions is None else min(parallelism, int(completions))


def ready_steps(jobset: Obj) -> frozenset[str]:
    """Return the steps of which every Job is ready or has succeeded: all their pods have started. Pure."""
    replicas = {str(entry["name"]): int(entry.get("replicas", 1)) for entry in jobset["spec"].get("replicatedJobs") or []}
    counters = (jobset.get("status") or {}).get("replicatedJobsStatus") or []
    return frozenset(
        str(entry.get("name"))
        for entry in counters
        if int(entry.get("ready") or 0) + int(entry.get("succeeded") or 0) >= replicas.get(str(entry.get("name")), 1) > 0
    )


def over_or_ready(job: Obj) -> Iterator[Place]:
    """Yield the places of a Job that need no pod any more, and all if so many pods are ready or have succeeded. Pure."""
    spec, status = job["spec"], job.get("status") or {}
    step, number = step_of(job), job_index_of(job)
    ready = int(status.get("ready") or 0) + int(status.get("succeeded") or 0)
    if ready >= (needed := pods_at_once(spec)):
        yield from (Place(step, number, index) for index in range(needed))
    completions = int(spec.get("completions") or needed)
    for ended in ("completedIndexes", "failedIndexes"):
        yield from (Place(step, number, index) for index in parse_indexes(status.get(ended), completions))


def has_started(pod: Obj) -> bool:
    """Whether all containers of a pod, sidecars included, have run at least once; init containers do not count. Pure."""
    containers = (pod.get("status") or {}).get("containerStatuses") or []
    return bool(containers) and all(map(_has_run, containers))


def _has_run(container: Obj) -> bool:
    ends = run_ends(container)
    return "running" in (container.get("state") or {}) or any(ended.get("reason") not in _NEVER_RAN for ended in ends)


def _created(obj: Obj) -> str:
    """Return when an object was created, in whole seconds."""
    return str(obj["metadata"].get("creationTimestamp") or "")[:19]
