"""The draft of a JobSet, which the policies of a TrainJob read and modify before the objects are built.

Items are inserted into lists as in Trainer: the first match is replaced in place, otherwise the item is appended. Variables and
volumes match by name, mounts by mountPath, ports by number or by name.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from trainwright.api import names
from trainwright.api.objects import Obj, labels_of, named, owner_reference
from trainwright.api.quantities import canonical
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


def owned_object(draft: Draft, api_version: str, kind: str, name: str) -> Obj:
    """Return an object with metadata only, owned by the draft's TrainJob, so that it is deleted with it."""
    reference = owner_reference(
        {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": draft.trainjob["metadata"]}
    )
    metadata = {"name": name, "namespace": draft.namespace, "ownerReferences": [reference]}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}


def upsert(items: list[Obj], item: Obj, key: str) -> None:
    """Replace the first element with the same `key`, or append."""
    for index, existing in enumerate(items):
        if existing.get(key) == item.get(key):
            items[index] = item
            return
    items.append(item)


def upsert_env(container: Obj, variables: Iterable[Obj]) -> None:
    """Upsert variables by name. The schema guarantees unique names."""
    positions: dict[str, int] | None = None
    for variable in variables:
        env = container.setdefault("env", [])
        if positions is None:
            positions = {present["name"]: index for index, present in enumerate(env)}
        name = variable["name"]
        if name in positions:
            env[positions[name]] = variable
        else:
            positions[name] = len(env)
            env.append(variable)


def upsert_volume(pod_spec: Obj, volume: Obj) -> None:
    upsert(pod_spec.setdefault("volumes", []), volume, "name")


def upsert_mount(container: Obj, mount: Obj) -> None:
    upsert(container.setdefault("volumeMounts", []), mount, "mountPath")


def upsert_port(container: Obj, port: Obj) -> None:
    """Upsert a port. Ports match by number or by name; two missing names match too, as in Trainer."""
    ports = container.setdefault("ports", [])
    for index, existing in enumerate(ports):
        if existing.get("containerPort") == port.get("containerPort") or existing.get("name") == port.get("name"):
            ports[index] = port
            return
    ports.append(port)


def trainer_env(variables: Iterable[Obj] | None) -> list[Obj]:
    """Convert a TrainJob's variables like Trainer: `valueFrom` takes precedence, references have exactly their known fields."""
    return [_variable(variable) for variable in variables or []]


KNOWN_SOURCES = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef")


def _variable(variable: Obj) -> Obj:
    source = variable.get("valueFrom")
    if not source:
        return {"name": variable["name"], "value": variable.get("value") or ""}
    kept: Obj = {}
    if field := source.get("fieldRef"):
        kept["fieldRef"] = {"fieldPath": field.get("fieldPath", "")}
    if resource := source.get("resourceFieldRef"):
        divisor = canonical(resource.get("divisor") or "0")
        names = {name: resource.get(name) or "" for name in ("containerName", "resource")}
        kept["resourceFieldRef"] = names | {"divisor": divisor}
    for kind in ("configMapKeyRef", "secretKeyRef"):
        if key := source.get(kind):
            kept[kind] = {name: key.get(name) or "" for name in ("key", "name")}
            if key.get("optional") is not None:
                kept[kind]["optional"] = key["optional"]
    return {"name": variable["name"], "valueFrom": kept}
