"""The JobSet in the making: what the policies of a TrainJob read and change before the objects are written out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from trainwright.api import names
from trainwright.api.objects import Obj, labels_of, named
from trainwright.materialize.keys import Keys, PlaceholderKeys
from trainwright.materialize.settings import Settings


@dataclass
class PodSet:
    """One replicated job: its pods, how many there are of them, and the step it stands for (its ancestor)."""

    job: Obj
    ancestor: str
    count: int

    @property
    def name(self) -> str:
        return str(self.job["name"])

    @property
    def pod_spec(self) -> Obj:
        spec: Obj = self.job["template"]["spec"]["template"]["spec"]
        return spec

    def container(self, name: str) -> Obj | None:
        return named(self.pod_spec.get("containers"), name)

    def all_containers(self) -> Iterator[Obj]:
        yield from self.pod_spec.get("containers") or []
        yield from self.pod_spec.get("initContainers") or []


@dataclass
class Draft:
    """Everything that one materialization works on. The inputs are private copies; policies may change them."""

    trainjob: Obj
    runtime: Obj
    settings: Settings
    jobset_spec: Obj
    labels: dict[str, str]
    annotations: dict[str, str]
    pod_sets: list[PodSet]
    keys: Keys = field(default_factory=PlaceholderKeys)
    companions: list[Obj] = field(default_factory=list)
    """Objects besides the JobSet: config maps, secrets, pod groups."""

    @property
    def name(self) -> str:
        return str(self.trainjob["metadata"]["name"])

    @property
    def namespace(self) -> str:
        return str(self.trainjob["metadata"].get("namespace") or "default")

    @property
    def trainer(self) -> Obj | None:
        """`spec.trainer`, or None: without it no rendezvous is set up (an empty object is enough)."""
        trainer: Obj | None = self.trainjob["spec"].get("trainer")
        return trainer

    @property
    def ml_policy(self) -> Obj | None:
        policy: Obj | None = (self.runtime.get("spec") or {}).get("mlPolicy")
        return policy

    def policy(self, name: str) -> Obj | None:
        """The settings of one ML policy of the runtime (`torch`, `mpi` ...), or None when it is not chosen."""
        policy: Obj | None = (self.runtime.get("spec") or {}).get("mlPolicy")
        return policy.get(name) if policy else None

    def pod_group_policy(self, name: str) -> Obj | None:
        """The settings of one pod group policy (`coscheduling`, `volcano`); both may be chosen."""
        settings: Obj | None = ((self.runtime.get("spec") or {}).get("podGroupPolicy") or {}).get(name)
        return settings

    @property
    def launcher_is_node(self) -> bool:
        """Whether this is MPI with `runLauncherAsNode`: then the workers are nodes of the trainer too."""
        return bool((self.policy("mpi") or {}).get("runLauncherAsNode"))

    def is_trained_by(self, pods: PodSet) -> bool:
        """Whether the TrainJob's variables and resources go to a replicated job: the trainer's, and MPI workers of one."""
        return pods.ancestor == names.ANCESTOR_TRAINER or (self.launcher_is_node and pods.name == names.NODE)

    def trainer_pods(self) -> PodSet | None:
        """The first replicated job with the ancestor `trainer`."""
        return next((pods for pods in self.pod_sets if pods.ancestor == names.ANCESTOR_TRAINER), None)

    def pods_named(self, name: str) -> PodSet | None:
        return next((pods for pods in self.pod_sets if pods.name == name), None)


def ancestor_of(replicated_job: Obj) -> str:
    """The step that a replicated job stands for: a label of its Job template."""
    return labels_of(replicated_job.get("template") or {}).get(names.ANCESTOR_LABEL, "")
