"""Parses jobs of the training operators' kinds (kubeflow.org): replicas of a few types, and a run policy.

Applies the operators' defaults, so that the rest of the migration sees a job as its operator did, and converts restart policies and
the run policy's backoffLimit to fields of the pod and of its Job. The schemas have the fields that the migration reads, so that it
need not check types again; other fields are not checked. Sources: the CRDs of training-operator 1.9, the defaults beside its API
types (tag v1.9.3), and mpi-operator v0.8.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from trainwright.api.errors import Invalid, Problem
from trainwright.api.objects import Obj, named
from trainwright.api.schema.check import findings
from trainwright.api.schema.defaulting import apply_defaults
from trainwright.api.schema.published import struct_named
from trainwright.api.schema.types import (
    ANY_VALUE,
    BOOLEAN,
    INT_OR_STRING,
    LONG,
    QUANTITIES,
    STRING,
    STRING_MAP,
    Integer,
    ListOf,
    MapOf,
    String,
    Struct,
)
from trainwright.migration.notes import Notes

_FIRST_RETRYABLE_EXIT_CODE = 128
BACKOFF = 6
"""The default backoffLimit of a batch/v1 Job. The training operator had no limit by default."""
_NAMES = Struct(
    {"name": STRING, "generateName": STRING, "namespace": STRING, "labels": STRING_MAP, "annotations": STRING_MAP}, open=True
)
_COUNT = Integer(0)
TEMPLATE = Struct({"metadata": _NAMES, "spec": struct_named("custom/PodSpec")}, ("spec",))
_REPLICAS = Struct(
    {
        "replicas": _COUNT,
        "restartPolicy": String(one_of=("", "Always", "OnFailure", "Never", "ExitCode")),
        "template": TEMPLATE,
    },
    ("template",),
)
_RUN_POLICY = Struct(
    {
        "activeDeadlineSeconds": LONG,
        "backoffLimit": _COUNT,
        "cleanPodPolicy": STRING,
        "managedBy": STRING,
        "suspend": BOOLEAN,
        "ttlSecondsAfterFinished": _COUNT,
        "schedulingPolicy": Struct(
            {
                "minAvailable": _COUNT,
                "minResources": QUANTITIES,
                "priorityClass": STRING,
                "queue": STRING,
                "scheduleTimeoutSeconds": _COUNT,
            },
            open=True,
        ),
    },
    open=True,
)
_SPEC: dict[str, Any] = {
    "runPolicy": _RUN_POLICY,
    "elasticPolicy": Struct(
        {
            "nProcPerNode": _COUNT,
            "maxRestarts": _COUNT,
            "rdzvBackend": STRING,
            "rdzvHost": STRING,
            "rdzvPort": _COUNT,
            "rdzvId": STRING,
            "rdzvConf": ListOf(Struct({"key": STRING, "value": STRING}, open=True)),
            "standalone": BOOLEAN,
        },
        open=True,
    ),
    "nprocPerNode": INT_OR_STRING,
    "slotsPerWorker": Integer(1),
    "mpiImplementation": STRING,
    "sshAuthMountPath": STRING,
    "mainContainer": STRING,
    "runLauncherAsWorker": BOOLEAN,
    "launcherCreationPolicy": STRING,
    "cleanPodPolicy": STRING,
    "successPolicy": STRING,
    "enableDynamicWorker": ANY_VALUE,
}


@dataclass(frozen=True)
class ReplicaType:
    """A replica type of a kind, with its operator's defaults."""

    name: str
    restart_policy: str = "Never"
    replicas: int = 1
    only_one: bool = False
    """Whether the operator refuses any other number of replicas."""


@dataclass(frozen=True)
class Replicas:
    """The pods of one replica type of the old job."""

    type: str
    path: str
    count: int
    restart_policy: str
    template: Obj

    @property
    def name(self) -> str:
        """The type as the operator wrote it in pod names and TF_CONFIG."""
        return self.type.lower()


@dataclass(frozen=True)
class ReplicaJob:
    """A parsed job."""

    obj: Obj
    replicas: dict[str, Replicas]
    """By type; also those without pods."""
    run_policy: Obj
    notes: Notes

    @property
    def spec(self) -> Obj:
        spec: Obj = self.obj["spec"]
        return spec

    @property
    def metadata(self) -> Obj:
        """Name or generateName, namespace, labels and annotations for the new objects."""
        kept = {key: self.obj["metadata"][key] for key in ("name", "generateName", "namespace") if key in self.obj["metadata"]}
        for key in ("labels", "annotations"):
            own = {name: value for name, value in (self.obj["metadata"].get(key) or {}).items() if "kubectl" not in name}
            if own:
                kept[key] = own
        return kept

    @property
    def has_name(self) -> bool:
        """Whether the name of the job is known before it is created."""
        return bool(self.obj["metadata"].get("name"))

    @property
    def name(self) -> str:
        """The name of the job, or a substitute for objects that belong to it."""
        metadata = self.obj["metadata"]
        return str(metadata.get("name") or str(metadata.get("generateName", "migrated")).rstrip("-"))

    @property
    def pods(self) -> int:
        """The number of pods."""
        return sum(replicas.count for replicas in self.replicas.values())

    def first_of(self, *types: str) -> Replicas | None:
        """Return the replicas of the first of these types that has pods, or None."""
        return next((self.replicas[name] for name in types if name in self.replicas and self.replicas[name].count), None)


def container_of(template: Obj, name: str) -> Obj:
    """Return the training container of a pod template: the one with the framework's name, else the first."""
    containers: list[Obj] = template["spec"]["containers"]
    return named(containers, name) or containers[0]


def port_of(replicas: Replicas, container: str, port: str, default: int) -> int:
    """Return the number of the port with this name, which the operators look for in the training container only."""
    ports = container_of(replicas.template, container).get("ports") or []
    found = named(ports, port)
    return int(found["containerPort"]) if found is not None else default


def parse(given: Obj, field: str, types: tuple[ReplicaType, ...], notes: Notes) -> ReplicaJob:
    """Parse a job, with the operator's defaults. The given object is not modified.

    Args:
        given: the manifest.
        field: the field of the spec that holds the replicas by type, which may be written in any case.
        types: the replica types, leaders first.
        notes: receives the unknown fields of pod templates.

    Raises Invalid for a job that the operator would have rejected too.
    """
    obj = without_nulls(given)
    problems = findings(schema_of(field), obj).all() or list(_problems(obj, field, types))
    if problems:
        raise Invalid(f"{obj.get('kind')} cannot be migrated", problems=problems)
    specs = {written.lower(): (written, spec) for written, spec in obj["spec"][field].items()}
    replicas = {}
    for kind in types:
        if kind.name.lower() in specs:
            written, spec = specs[kind.name.lower()]
            replicas[kind.name] = _replicas(kind, spec, f"spec.{field}.{written}", notes)
    job = ReplicaJob(obj, replicas, obj["spec"].get("runPolicy") or {}, notes)
    if not job.pods:
        problem = Problem(f"spec.{field}", "Invalid value: the replicas of all types are 0")
        raise Invalid(f"{obj['kind']} cannot be migrated", problems=[problem])
    return job


def _problems(obj: Obj, field: str, types: tuple[ReplicaType, ...]) -> Iterator[Problem]:
    """Yield problems that the schema cannot express."""
    if not obj["metadata"].get("name") and not obj["metadata"].get("generateName"):
        yield Problem("metadata.name", "Required value: name or generateName is required")
    if not obj["spec"][field]:
        yield Problem(f"spec.{field}", "Required value")
    known, seen = {kind.name.lower(): kind for kind in types}, set()
    for written, replica in obj["spec"][field].items():
        path, kind = f"spec.{field}.{written}", known.get(written.lower())
        if kind is None:
            yield Problem(path, f"Unsupported value: expected one of {', '.join(kind.name for kind in types)}")
        elif kind.only_one and replica.get("replicas", 1) != 1:
            yield Problem(f"{path}.replicas", "Invalid value: must be 1")
        if written.lower() in seen:
            yield Problem(path, "Duplicate value: the same type in another case")
        seen.add(written.lower())
        yield from _container_problems(replica["template"]["spec"]["containers"], f"{path}.template.spec.containers")


def _container_problems(containers: list[Obj], path: str) -> Iterator[Problem]:
    if not containers:
        yield Problem(path, "Required value")
    for number, container in enumerate(containers):
        if not container.get("image"):  # a runtime's image would take its place
            yield Problem(f"{path}[{number}].image", "Required value")


def _replicas(kind: ReplicaType, spec: Obj, path: str, notes: Notes) -> Replicas:
    template, unknown = apply_defaults(TEMPLATE, spec["template"], f"{path}.template")
    for where, _ in unknown:
        notes.add(where, "is not kept: the API server dropped this unknown field from the old job too")
    metadata = {key: value for key in ("labels", "annotations") if (value := (template.pop("metadata", {}).get(key)))}
    template["spec"].pop("restartPolicy", None)  # overridden by the replica type's
    if metadata:
        template["metadata"] = metadata
    policy = spec.get("restartPolicy") or kind.restart_policy
    return Replicas(kind.name, path, spec.get("replicas", kind.replicas), policy, template)


@dataclass(frozen=True)
class Restarts:
    """The restart policy of the pods, and the fields of their Job."""

    pod: str
    job: Obj

    @property
    def is_default(self) -> bool:
        """Whether this is what JobSet and Kubernetes set if a runtime says nothing, as the bundled ones do."""
        return self.pod == "OnFailure" and self.job == {"backoffLimit": BACKOFF}


def restarts_of(job: ReplicaJob, replicas: Replicas) -> Restarts:
    """Convert the restart policy of a replica type."""
    limit = job.run_policy.get("backoffLimit")
    retries = {"backoffLimit": BACKOFF if limit is None else limit}
    if replicas.restart_policy in ("Always", "OnFailure"):
        return Restarts("OnFailure", retries)
    if replicas.restart_policy == "ExitCode":
        codes = {"operator": "In", "values": list(range(1, _FIRST_RETRYABLE_EXIT_CODE))}
        return Restarts("Never", retries | {"podFailurePolicy": {"rules": [{"action": "FailJob", "onExitCodes": codes}]}})
    return Restarts("Never", {"backoffLimit": 0})


def note_restarts(job: ReplicaJob, replicas: Replicas) -> None:
    """Add a note on a policy that Jobs do not have."""
    texts = {
        "Always": "Always became OnFailure: a Job does not restart pods that have succeeded",
        "ExitCode": "ExitCode became a podFailurePolicy: exit codes below 128 fail the job, others are retried",
    }
    if replicas.restart_policy in texts:
        job.notes.add(f"{replicas.path}.restartPolicy", texts[replicas.restart_policy])


def schema_of(field: str) -> Struct:
    """Return the schema of a kind with its replicas in `spec.FIELD`."""
    spec = Struct({**_SPEC, field: MapOf(_REPLICAS)}, (field,), open=True)
    return Struct({"metadata": _NAMES, "spec": spec}, ("metadata", "spec"), open=True)


def without_nulls(value: Any) -> Any:
    """Return a copy without null fields, which an API server drops too."""
    if isinstance(value, dict):
        kept: Obj = {key: without_nulls(part) for key, part in value.items() if part is not None}
        return kept
    if isinstance(value, list):
        return [without_nulls(part) for part in value]
    return value
