"""The common parts of the training operator's kinds (kubeflow.org/v1): replicas of a few types, and a run policy.

Source: the CRDs of training-operator 1.9; for the operator's behaviour, the environment that it set in pods.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from trainwright.api import names
from trainwright.api.errors import Invalid, Problem
from trainwright.api.objects import Obj
from trainwright.api.schema.check import findings
from trainwright.migration.notes import Notes
from trainwright.migration.replica_schemas import schema_of, without_nulls

API_VERSION = "trainer.kubeflow.org/v1alpha1"
ANCESTOR_LABEL = "trainer.kubeflow.org/trainjob-ancestor-step"
FRAMEWORK_LABEL = "trainer.kubeflow.org/framework"
_FIRST_RETRYABLE_EXIT_CODE = 128
_BACKOFF = 6
"""The default backoffLimit of a batch/v1 Job."""


@dataclass(frozen=True)
class Replicas:
    """One replica type of the old job."""

    type: str
    path: str
    count: int
    restart_policy: str
    template: Obj

    @property
    def name(self) -> str:
        """The name of the new replicated job."""
        return self.type.lower()

    def container(self, name: str) -> Obj:
        """Return the training container: the one with the framework's name, else the first."""
        containers: list[Obj] = self.template["spec"]["containers"]
        return next((one for one in containers if one.get("name") == name), containers[0])


@dataclass(frozen=True)
class ReplicaJob:
    """A parsed job."""

    obj: Obj
    replicas: dict[str, Replicas]
    run_policy: Obj
    notes: Notes

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
    def name(self) -> str:
        """The name of the job, or a substitute for objects that belong to it."""
        metadata = self.obj["metadata"]
        return str(metadata.get("name") or str(metadata.get("generateName", "migrated")).rstrip("-"))

    def first_of(self, *types: str) -> Replicas | None:
        """Return the replicas of the first of these types that the job has, or None."""
        return next((self.replicas[name] for name in types if name in self.replicas), None)


def parse(given: Obj, field: str, types: tuple[str, ...], notes: Notes) -> ReplicaJob:
    """Parse a job and its replicas by type. Raises Invalid for a job that the old operator would have rejected too."""
    obj = without_nulls(given)
    problems = findings(schema_of(field), obj).all() or list(_problems(obj, field, types))
    if problems:
        raise Invalid(f"{obj.get('kind')} cannot be migrated", problems=problems)
    specs = obj["spec"][field]
    replicas = {name: _replicas(name, specs[name], f"spec.{field}.{name}") for name in types if name in specs}
    return ReplicaJob(obj, replicas, obj["spec"].get("runPolicy") or {}, notes)


def _problems(obj: Obj, field: str, types: tuple[str, ...]) -> Iterator[Problem]:
    """Yield problems that the schema cannot express."""
    if not obj["metadata"].get("name") and not obj["metadata"].get("generateName"):
        yield Problem("metadata.name", "Required value: name or generateName is required")
    if not obj["spec"][field]:
        yield Problem(f"spec.{field}", "Required value")
    for name, replica in obj["spec"][field].items():
        if name not in types:
            yield Problem(f"spec.{field}.{name}", f"Unsupported value: expected one of {', '.join(types)}")
        if not replica["template"]["spec"]["containers"]:
            yield Problem(f"spec.{field}.{name}.template.spec.containers", "Required value")


def _replicas(name: str, spec: Obj, path: str) -> Replicas:
    return Replicas(name, path, spec.get("replicas", 1), spec.get("restartPolicy") or "Never", spec["template"])


def build_trainjob(job: ReplicaJob, runtime: Obj, trainer: Obj | None = None) -> Obj:
    """Return a TrainJob with the fields of the run policy, the runtime reference, and the trainer settings."""
    spec: Obj = {"runtimeRef": runtime}
    if trainer:
        spec["trainer"] = trainer
    policy = job.run_policy
    if policy.get("suspend") is not None:
        spec["suspend"] = policy["suspend"]
    if policy.get("activeDeadlineSeconds") is not None:
        spec["activeDeadlineSeconds"] = policy["activeDeadlineSeconds"]
    managed_by = policy.get("managedBy")
    if managed_by == names.MULTIKUEUE_CONTROLLER:
        spec["managedBy"] = managed_by
    elif managed_by:
        job.notes.add("spec.runPolicy.managedBy", f"{managed_by} is the old controller; the new one is the default")
    metadata = job.metadata
    queue = (policy.get("schedulingPolicy") or {}).get("queue")
    if queue:
        metadata["labels"] = {**metadata.get("labels", {}), names.QUEUE_LABEL: queue}
        job.notes.add(
            "spec.runPolicy.schedulingPolicy.queue", f"became the label {names.QUEUE_LABEL} (Kueue); Volcano uses an annotation"
        )
    if not _needs_runtime(policy):
        _note_clean_up(job)
    return {"apiVersion": API_VERSION, "kind": "TrainJob", "metadata": metadata, "spec": spec}


def build_runtime(
    job: ReplicaJob,
    framework: str,
    ml_policy: Obj,
    replicated_jobs: list[Obj],
    *,
    success: list[str],
    network: Obj | None = None,
) -> Obj:
    """Return a TrainingRuntime for this job, with its name."""
    policy = job.run_policy
    template: Obj = {"successPolicy": {"operator": "All", "targetReplicatedJobs": success}, "replicatedJobs": replicated_jobs}
    if network:
        template["network"] = network
    if policy.get("ttlSecondsAfterFinished") is not None:
        template["ttlSecondsAfterFinished"] = policy["ttlSecondsAfterFinished"]
    spec: Obj = {"mlPolicy": ml_policy, "template": {"spec": template}}
    if gang := _gang_policy(job):
        spec["podGroupPolicy"] = gang
    _note_clean_up(job)
    metadata: Obj = {"name": job.name, "labels": {FRAMEWORK_LABEL: framework}}
    if "namespace" in job.metadata:
        metadata["namespace"] = job.metadata["namespace"]
    return {"apiVersion": API_VERSION, "kind": "TrainingRuntime", "metadata": metadata, "spec": spec}


def runtime_ref(own: Obj) -> Obj:
    """Return the `runtimeRef` of a runtime."""
    return {"kind": own["kind"], "name": own["metadata"]["name"]}


def build_replicated_job(
    job: ReplicaJob, replicas: Replicas, name: str, *, count: int | None = None, container: Obj, ancestor: bool
) -> Obj:
    """Return a replicated job. With `ancestor` its container is renamed to `node`, which Trainer's policies expect. `count` None
    leaves the number to the policy."""
    template = replicas.template
    if container["name"] != names.NODE and ancestor:
        job.notes.add(f"{replicas.path}.template.spec.containers", f"the container {container['name']!r} was renamed to 'node'")
        container["name"] = names.NODE
    pod = template["spec"]
    spec: Obj = {"template": template}
    if count is not None:
        spec |= {"parallelism": count, "completions": count}
    spec |= _restart_fields(job, replicas, pod)
    priority = (job.run_policy.get("schedulingPolicy") or {}).get("priorityClass")
    if priority:
        pod.setdefault("priorityClassName", priority)
    made: Obj = {"name": name, "template": {"spec": spec}}
    if ancestor:
        made["template"]["metadata"] = {"labels": {ANCESTOR_LABEL: "trainer"}}
    return made


def trainer_fields(job: ReplicaJob, replicas: Replicas, container: Obj) -> Obj | None:
    """Return the `spec.trainer` for a bundled runtime if the replicas need nothing else, otherwise None."""
    pod = {key: value for key, value in replicas.template["spec"].items() if key not in ("containers", "restartPolicy")}
    metadata = replicas.template.get("metadata") or {}
    unsupported = set(container) - {"name", "image", "command", "args", "env", "resources", "imagePullPolicy"}
    extra = [key for key in ("labels", "annotations") if metadata.get(key)]
    if pod or unsupported or extra or len(replicas.template["spec"]["containers"]) > 1 or _needs_runtime(job.run_policy):
        return None
    if container.get("imagePullPolicy"):
        job.notes.add(
            f"{replicas.path}.template.spec.containers",
            f"imagePullPolicy {container['imagePullPolicy']} is not kept: the runtime determines it",
        )
    if replicas.restart_policy != "Never":
        job.notes.add(
            f"{replicas.path}.restartPolicy",
            f"{replicas.restart_policy} is not kept: the runtime's backoffLimit determines restarts",
        )
    trainer = {key: container[key] for key in ("image", "command", "args", "env") if container.get(key)}
    if container.get("resources"):
        trainer["resourcesPerNode"] = container["resources"]
    return trainer


def note_differences(job: ReplicaJob, leader: Replicas, others: Replicas) -> None:
    """Add notes for fields that differ from the leader's template, which all nodes of the TrainJob use."""
    for path in _differences(leader.template, others.template, f"{others.path}.template"):
        job.notes.add(path, f"differs from {leader.type}, whose template is now used for all nodes")


def index_env(name: str) -> Obj:
    """Return a variable with the pod's completion index."""
    return {
        "name": name,
        "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"}},
    }


JOBSET_NAME: Obj = {
    "name": "JOBSET_NAME",
    "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['jobset.sigs.k8s.io/jobset-name']"}},
}
"""For host names that do not depend on the TrainJob's name."""


def host(replicated: str, index: int | str) -> str:
    """Return a pod's host name, for a variable defined after JOBSET_NAME."""
    return f"$(JOBSET_NAME)-{replicated}-0-{index}.$(JOBSET_NAME)"


def add_env(container: Obj, variables: list[Obj]) -> None:
    """Insert variables before the container's own, which take precedence and may refer to them."""
    own = container.get("env") or []
    own_names = {variable.get("name") for variable in own}
    container["env"] = [variable for variable in variables if variable["name"] not in own_names] + own


def _restart_fields(job: ReplicaJob, replicas: Replicas, pod: Obj) -> Obj:
    """Convert the replica type's restartPolicy and backoffLimit to fields of the Job."""
    limit = job.run_policy.get("backoffLimit")
    policy, path = replicas.restart_policy, f"{replicas.path}.restartPolicy"
    if policy in ("Always", "OnFailure"):
        pod["restartPolicy"] = "OnFailure"
        if policy == "Always":
            job.notes.add(path, "Always became OnFailure: a Job does not restart pods that have succeeded")
        return {"backoffLimit": _BACKOFF if limit is None else limit}
    pod["restartPolicy"] = "Never"
    if policy == "ExitCode":
        job.notes.add(path, "ExitCode became a podFailurePolicy: exit codes below 128 fail the job, others are retried")
        last = _FIRST_RETRYABLE_EXIT_CODE - 1
        codes = {"operator": "In", "values": list(range(1, last + 1))}
        return {
            "backoffLimit": _BACKOFF if limit is None else limit,
            "podFailurePolicy": {"rules": [{"action": "FailJob", "onExitCodes": codes}]},
        }
    return {"backoffLimit": 0}


def _gang_policy(job: ReplicaJob) -> Obj | None:
    """Convert gang scheduling. A flag of the old operator chose Volcano or the scheduler plugins; now podGroupPolicy does."""
    scheduling = job.run_policy.get("schedulingPolicy") or {}
    path = "spec.runPolicy.schedulingPolicy"
    for field in ("minAvailable", "minResources"):
        if scheduling.get(field) is not None:
            job.notes.add(f"{path}.{field}", "is now computed from all pods of the job")
    if not set(scheduling) & {"minAvailable", "minResources", "scheduleTimeoutSeconds"}:
        return None
    job.notes.add(path, "became podGroupPolicy.coscheduling; for Volcano use podGroupPolicy.volcano: {} instead")
    seconds = scheduling.get("scheduleTimeoutSeconds")
    return {"coscheduling": {"scheduleTimeoutSeconds": seconds} if seconds is not None else {}}


def _needs_runtime(policy: Obj) -> bool:
    """Whether the run policy has fields that only a runtime can express."""
    scheduling = set(policy.get("schedulingPolicy") or {}) - {"queue"}
    return policy.get("ttlSecondsAfterFinished") is not None or policy.get("backoffLimit") is not None or bool(scheduling)


def _note_clean_up(job: ReplicaJob) -> None:
    for path, policy in (("spec.runPolicy.cleanPodPolicy", job.run_policy), ("spec.cleanPodPolicy", job.obj["spec"])):
        clean_up = policy.get("cleanPodPolicy")
        if clean_up == "None":
            job.notes.add(path, "None is not kept: running pods are terminated when the job ends, finished pods are kept")
        elif clean_up == "All":
            job.notes.add(path, "All is not kept: finished pods are kept until ttlSecondsAfterFinished deletes the job")


def _differences(one: Any, other: Any, path: str) -> list[str]:
    if isinstance(one, dict) and isinstance(other, dict):
        keys = [*one, *(key for key in other if key not in one)]
        return [found for key in keys for found in _differences(one.get(key), other.get(key), f"{path}.{key}")]
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return [
            found for index, (a, b) in enumerate(zip(one, other, strict=True)) for found in _differences(a, b, f"{path}[{index}]")
        ]
    return [] if one == other else [path]
