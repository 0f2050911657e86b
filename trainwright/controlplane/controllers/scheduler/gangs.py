"""The resources that a JobSet needs for all pods that must run concurrently, and those that a node has, as running totals.

A JobSet is started only when all of its pods fit, and resources are reserved for pods that do not exist yet. So two JobSets cannot
deadlock by each waiting for the rest of its pods, whatever their startup order. Totals make the cost per pod constant.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from trainwright.api.conditions import is_finished, is_true
from trainwright.api.integers import parse_count
from trainwright.api.objects import Obj, is_controlled_by, is_deleting, name_of, named, uid_of
from trainwright.api.quantities import Quantity, Requests, parse_quantity, template_requests
from trainwright.controlplane.controllers.jobset.construct import job_name
from trainwright.controlplane.controllers.jobset.depends_on import dependency_met

_ENDING = ("SuccessCriteriaMet", "FailureTarget")
_ONE = parse_quantity(1)
PODS = "pods"
_NOTHING = parse_quantity(0)


@dataclass(frozen=True)
class PodDemand:
    """The number of pods of a Job, and the requests of one; `job` is its UID, empty before it exists."""

    step: str
    job: str
    count: int
    requests: Requests
    template: Obj = field(repr=False)


def pod_demands(jobset: Obj, jobs: Iterable[Obj]) -> list[PodDemand]:
    """Return the demand of each Job that may run now."""
    if is_finished(jobset) or is_deleting(jobset) or jobset["spec"].get("suspend"):
        return []  # its controllers create no pods now
    own = {name_of(job): job for job in jobs if is_controlled_by(job, jobset) and not is_deleting(job)}
    return [demand for replicated in concurrent_jobs(jobset) for demand in _of_replicas(jobset, replicated, own)]


def missing_requests(found: Iterable[PodDemand], live_pods: Counter[str]) -> Requests:
    """Return the requests of pods that do not exist yet. `live_pods` counts existing pods by the UID of their Job."""
    total: Requests = {}
    for demand in found:
        left = demand.count - live_pods.get(demand.job, 0) if demand.job else demand.count
        if left > 0:
            add(total, demand.requests, left)
    return total


def concurrent_jobs(jobset: Obj) -> list[Obj]:
    """Return replicated jobs that run now or concurrently with those, not those that wait for the completion of another."""
    counters = (jobset.get("status") or {}).get("replicatedJobsStatus") or []
    found: list[Obj] = []
    for replicated in jobset["spec"].get("replicatedJobs") or []:
        before = {entry["name"] for entry in found}
        if all(
            dependency_met(dependency, jobset, counters) or (dependency["status"] == "Ready" and dependency["name"] in before)
            for dependency in replicated.get("dependsOn") or []
        ):
            found.append(replicated)
    return found


def stages(jobset: Obj) -> Iterator[list[tuple[str, int, Requests]]]:
    """Yield groups of replicated jobs that run concurrently: name, number of pods, and requests of one pod."""
    numbers: dict[str, int] = {}
    for replicated in jobset["spec"].get("replicatedJobs") or []:
        after = [
            numbers.get(dependency["name"], 0) + (dependency["status"] == "Complete")
            for dependency in replicated.get("dependsOn") or []
        ]
        numbers[replicated["name"]] = max(after, default=0)
    for number in sorted(set(numbers.values())):
        yield [
            (name, _pods_of(entry["template"]["spec"], 0) * int(entry.get("replicas", 1)), _requests(entry["template"]["spec"]))
            for name, stage in numbers.items()
            if stage == number and (entry := named(jobset["spec"]["replicatedJobs"], name)) is not None
        ]


def _of_replicas(jobset: Obj, replicated: Obj, own: dict[str, Obj]) -> Iterator[PodDemand]:
    step, replicas = replicated["name"], int(replicated.get("replicas", 1))
    # Goes through the Jobs that exist, because `replicas` may be two thousand million.
    indexes = [parse_count(name.rpartition("-")[2]) for name in own]
    existing = {
        index for index in indexes if index is not None and index < replicas and job_name(jobset, replicated, index) in own
    }
    for index in sorted(existing):
        job = own[job_name(jobset, replicated, index)]
        if not is_finished(job) and not any(is_true(job, kind) for kind in _ENDING):
            spec = job["spec"]
            count = _pods_of(spec, int((job.get("status") or {}).get("succeeded") or 0))
            yield PodDemand(step, uid_of(job), count, _requests(spec), spec["template"]["spec"])
    if planned := replicas - len(existing):
        spec = replicated["template"]["spec"]
        yield PodDemand(step, "", planned * _pods_of(spec, 0), _requests(spec), spec["template"]["spec"])


def _pods_of(job_spec: Obj, succeeded: int) -> int:
    parallelism, completions = int(job_spec.get("parallelism", 1)), job_spec.get("completions")
    return parallelism if completions is None else max(min(parallelism, int(completions) - succeeded), 0)


def _requests(job_spec: Obj) -> Requests:
    return {**template_requests(job_spec["template"]["spec"]), PODS: _ONE}


class NodeResources:
    """The resources of a node, including the number of pods."""

    def __init__(self, node: Obj, requested: Requests):
        allocatable = (node.get("status") or {}).get("allocatable") or {}
        self._allocatable = {name: parse_quantity(amount) for name, amount in allocatable.items()}
        self._requested = dict(requested)

    def reserve(self, requests: Requests) -> None:
        """Add requests, even if they exceed the free resources."""
        add(self._requested, requests)

    def release(self, requests: Requests) -> None:
        """Subtract requests."""
        add(self._requested, requests, -1)

    def copy(self) -> NodeResources:
        """Return the same node, whose requests can be changed on their own."""
        other = NodeResources({}, self._requested)
        other._allocatable = self._allocatable
        return other

    def insufficient(self, requests: Requests) -> list[str]:
        """Return the resources that do not fit, the number of pods first; empty if all fit."""
        return [
            name for name, amount in _nonzero(requests) if self._requested.get(name, _NOTHING) + amount > self.allocatable(name)
        ]

    def exceeding_capacity(self, requests: Requests) -> list[str]:
        """Return the resources that do not fit even on an empty node."""
        return [name for name, amount in _nonzero(requests) if amount > self.allocatable(name)]

    def allocatable(self, name: str) -> Quantity:
        return self._allocatable.get(name, _NOTHING)


def add(total: Requests, more: Requests, times: int = 1) -> None:
    """Add requests to `total` in place; `times` -1 subtracts them."""
    for name, amount in more.items():
        total[name] = total.get(name, _NOTHING) + amount * times


def _nonzero(requests: Requests) -> list[tuple[str, Quantity]]:
    nonzero = [(name, amount) for name, amount in requests.items() if amount > _NOTHING]
    return sorted(nonzero, key=lambda entry: (entry[0] != PODS, entry[0]))
