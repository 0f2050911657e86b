"""Where the pods of an old job are in the new JobSet, the host names that they have there, and the variables that say so.

Replica types with the same template become nodes of one replicated job, as Trainer expects. Types that differ (in command,
resources, restart policy) keep their own templates: each becomes a replicated job.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from trainwright.api import names
from trainwright.api.objects import Obj
from trainwright.migration.notes import Notes
from trainwright.migration.replica_job import Replicas

OPERATOR_LABELS = "training.kubeflow.org/"
"""The prefix of the labels that the operators set on pods."""
COMPLETION_INDEX = f"metadata.annotations['{names.COMPLETION_INDEX}']"
JOB_INDEX = f"metadata.labels['{names.JOB_INDEX_LABEL}']"
_GLOBAL_JOB_INDEX = "metadata.labels['jobset.sigs.k8s.io/job-global-index']"
JOBSET_LABEL = f"metadata.labels['{names.JOBSET_NAME_LABEL}']"
JOBSET = "$(JOBSET_NAME)"
JOBSET_NAME: Obj = {"name": "JOBSET_NAME", "valueFrom": {"fieldRef": {"fieldPath": JOBSET_LABEL}}}
"""For host names that do not depend on the TrainJob's name. Comes before the variables that refer to it."""


@dataclass(frozen=True)
class Place:
    """Pods of one replica type, from number `first` on, and the replicated job that they are in now."""

    job: str
    replicas: Replicas
    count: int
    first: int = 0
    offset: int = 0
    """The completion index of the first of these pods."""
    own_jobs: bool = False
    """Whether each pod is a Job of the replicated job, whose index is then the pod's number."""

    def pod(self, number: int) -> str:
        """Return `JOB-JOBINDEX-PODINDEX` for a pod of the type, of which JobSet makes names."""
        index = number - self.first + self.offset
        return f"{self.job}-{index}-0" if self.own_jobs else f"{self.job}-0-{index}"


@dataclass(frozen=True)
class Placement:
    """All pods of a job, leaders first."""

    places: tuple[Place, ...]

    @property
    def jobs(self) -> list[Place]:
        """The first place of each replicated job, whose template its pods have."""
        return list({place.job: place for place in reversed(self.places)}.values())[::-1]

    @property
    def is_split(self) -> bool:
        """Whether the pods are in several replicated jobs."""
        return len(self.jobs) > 1

    def of(self, replicas: Replicas) -> Iterator[Place]:
        """Yield the places of a replica type."""
        return (place for place in self.places if place.replicas is replicas)

    def pod(self, replicas: Replicas, number: int) -> str | None:
        """Return `JOB-JOBINDEX-PODINDEX` of a pod; None if the type has no pod with this number."""
        for place in self.of(replicas):
            if place.first <= number < place.first + place.count:
                return place.pod(number)
        return None

    def host(self, replicas: Replicas, number: int, owner: str) -> str:
        """Return the host name of an existing pod, in the JobSet `owner` (a name, or a reference to a variable)."""
        return f"{owner}-{self.pod(replicas, number)}.{owner}"


def node_placement(*types: Replicas | None) -> Placement:
    """Return the placement of types that share one order of ranks, leaders first.

    All are in the replicated job `node` if they are alike. Otherwise the leader is, and each follower is a Job of the replicated
    job with its type's name, so that JobSet's global job index is its rank.
    """
    given = [replicas for replicas in types if replicas is not None]
    if all(_is_alike(given[0], other) for other in given[1:]):
        places, offset = [], 0
        for replicas in given:
            places.append(Place(names.NODE, replicas, replicas.count, offset=offset))
            offset += replicas.count
        return Placement(tuple(places))
    leader, *others = given
    followers = [Place(other.name, other, other.count, own_jobs=True) for other in others]
    return Placement((Place(names.NODE, leader, leader.count), *followers))


def _is_alike(one: Replicas, other: Replicas) -> bool:
    """Whether pods of both types can have one template: equal ones, which do not ask for the type or the number of the pod."""
    asks = f"{OPERATOR_LABELS}replica-" in json.dumps(one.template)
    return one.template == other.template and one.restart_policy == other.restart_policy and not asks


def value(name: str, text: object) -> Obj:
    """Return a variable with a fixed value."""
    return {"name": name, "value": str(text)}


def field(name: str, path: str) -> Obj:
    """Return a variable with the value of a field of the pod."""
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def index(name: str) -> Obj:
    """Return a variable with the pod's completion index."""
    return field(name, COMPLETION_INDEX)


def rank(name: str, *, is_split: bool) -> Obj:
    """Return a variable with the pod's rank under `node_placement`."""
    return field(name, _GLOBAL_JOB_INDEX if is_split else COMPLETION_INDEX)


def set_environment(container: Obj, variables: list[Obj], path: str, notes: Notes, *, reserved: tuple[str, ...] = ()) -> None:
    """Insert the operator's variables before the container's own.

    The operators appended their variables, so that they won over the manifest's: a leftover RANK there had no effect.
    `reserved` are further names that only Trainer may set.
    """
    ours = {variable["name"] for variable in variables}
    own = container.get("env") or []
    last = {variable.get("name"): number for number, variable in enumerate(own)}
    kept = []
    for number, variable in enumerate(own):
        name = variable.get("name")
        if name in ours or name in reserved:
            why = "the operator set it too, and its value won" if name in ours else "Trainer sets it"
            notes.add(f"{path}.env[{number}]", f"{name} is not kept: {why}")
        elif last[name] == number:  # the last of several with this name was the one in effect
            kept.append(variable)
    if variables or kept:
        container["env"] = variables + kept
    else:
        container.pop("env", None)
