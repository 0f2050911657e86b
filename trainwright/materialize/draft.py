"""The draft of a JobSet, which the policies of a TrainJob read and modify before the objects are built."""

from __future__ import annotations

from dataclasses import dataclass, field

from trainwright.api import names
from trainwright.api.objects import Obj, labels_of, named
from trainwright.materialize.keys import Keys, PlaceholderKeys
from trainwright.materialize.settings import Settings


@dataclass
class PodSet:
    """A replicated job: its template, its number of pods, and its step (ancestor label)."""

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


@dataclass
class Draft:
    """The state of one materialization. The inputs are private copies that policies may modify."""

    trainjob: Obj
    runtime: Obj
    settings: Settings
    jobset_spec: Obj
    labels: dict[str, str]
    annotations: dict[str, str]
    pod_sets: list[PodSet]
    keys: Keys = field(default_factory=PlaceholderKeys)
    companions: list[Obj] = field(default_factory=list)
    """Objects other than the JobSet: ConfigMaps, Secrets, PodGroups."""

    @property
    def name(self) -> str:
        return str(self.trainjob["metadata"]["name"])

    @property
    def namespace(self) -> str:
        return str(self.trainjob["metadata"].get("namespace") or "default")

    @property
    def trainer(self) -> Obj | None:
        """`spec.trainer`, or None. Without it no rendezvous is configured; an empty object is enough."""
        trainer: Obj | None = self.trainjob["spec"].get("trainer")
        return trainer

    @property
    def ml_policy(self) -> Obj | None:
        policy: Obj | None = (self.runtime.get("spec") or {}).get("mlPolicy")
        return policy

    def policy(self, name: str) -> Obj | None:
        """Return the settings of an ML policy of the runtime (`torch`, `mpi` ...), or None if it is not set."""
        policy: Obj | None = (self.runtime.get("spec") or {}).get("mlPolicy")
        return policy.get(name) if policy else None

    def pod_group_policy(self, name: str) -> Obj | None:
        """Return the settings of a pod group policy (`coscheduling`, `volcano`); both may be set."""
        settings: Obj | None = ((self.runtime.get("spec") or {}).get("podGroupPolicy") or {}).get(name)
        return settings

    @property
    def launcher_is_node(self) -> bool:
        """Whether this is MPI with `runLauncherAsNode`; then the workers are trainer nodes too."""
        return bool((self.policy("mpi") or {}).get("runLauncherAsNode"))

    def is_trained_by(self, pods: PodSet) -> bool:
        """Whether the TrainJob's variables and resources apply to a replicated job: the trainer's, and its MPI workers."""
        return pods.ancestor == names.ANCESTOR_TRAINER or (self.launcher_is_node and pods.name == names.NODE)

    def trainer_pods(self) -> PodSet | None:
        """Return the first replicated job with the ancestor `trainer`."""
        return next((pods for pods in self.pod_sets if pods.ancestor == names.ANCESTOR_TRAINER), None)

    def pods_named(self, name: str) -> PodSet | None:
        return next((pods for pods in self.pod_sets if pods.name == name), None)


def ancestor_of(replicated_job: Obj) -> str:
    """Return the step of a replicated job, from a label of its Job template."""
    return labels_of(replicated_job.get("template") or {}).get(names.ANCESTOR_LABEL, "")
