"""Builds the TrainJob of an old job, on a bundled runtime if that says the same, else with a TrainingRuntime for this job."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from trainwright.api import names
from trainwright.api.errors import Invalid, Problem
from trainwright.api.objects import Obj, copy_of, named
from trainwright.migration.notes import MigrationResult
from trainwright.migration.placement import Place, Placement, set_environment
from trainwright.migration.replica_job import ReplicaJob, container_of, note_restarts, restarts_of

API_VERSION = "trainer.kubeflow.org/v1alpha1"
TRAINER = {names.ANCESTOR_LABEL: names.ANCESTOR_TRAINER}
_STOCK_FIELDS = {"name", "image", "command", "args", "env", "resources", "imagePullPolicy"}
"""Fields of a container that a TrainJob can set, or that a bundled runtime leaves to their defaults."""


@dataclass(frozen=True)
class Framework:
    """What the jobs of one kind have in common."""

    name: str
    container: str
    """The name of the training container."""
    environment: Callable[[Place], list[Obj]]
    """The variables that the operator set, for the pods of a place."""
    reserved: tuple[str, ...] = ()
    """Further names of variables that Trainer refuses."""
    every_container: bool = True
    """Whether the operator set the variables in all containers of a pod."""


@dataclass(frozen=True)
class JobSetPlan:
    """Which fields of the runtime, and of the TrainJob's `trainer`, the replicated jobs need."""

    ml_policy: Obj
    success: list[str]
    trainer: Obj = field(default_factory=dict)
    network: Obj = field(default_factory=dict)


def with_environment(job: ReplicaJob, framework: Framework, place: Place) -> Obj:
    """Return the pod template of a place, with the operator's variables."""
    template = copy_of(place.replicas.template)
    main = container_of(template, framework.container)
    variables = framework.environment(place)
    for number, container in enumerate(template["spec"]["containers"]):
        if container is main or framework.every_container:
            path = f"{place.replicas.path}.template.spec.containers[{number}]"
            reserved = framework.reserved if container is main else ()
            set_environment(container, copy_of(variables), path, job.notes, reserved=reserved)
    return template


def stock_result(
    job: ReplicaJob, framework: Framework, placement: Placement, runtime: str, numbers: Obj
) -> MigrationResult | None:
    """Return a TrainJob on a bundled runtime, with these numbers; None if the pods need anything that a TrainJob cannot set."""
    place = placement.jobs[0]
    template = place.replicas.template
    container = container_of(template, framework.container)
    if placement.is_split or set(template["spec"]) != {"containers"} or len(template["spec"]["containers"]) > 1:
        return None
    if template.get("metadata") or set(container) - _STOCK_FIELDS or (container.get("resources") or {}).get("claims"):
        return None
    if not restarts_of(job, place.replicas).is_default or _needs_runtime(job.run_policy) or not _pulls_by_default(container):
        return None
    note_restarts(job, place.replicas)
    container = with_environment(job, framework, place)["spec"]["containers"][0]
    trainer = {key: container[key] for key in ("image", "command", "args", "env") if container.get(key)}
    if container.get("resources"):
        trainer["resourcesPerNode"] = container["resources"]
    _note_clean_up(job)
    reference = {"kind": "ClusterTrainingRuntime", "name": runtime}
    return MigrationResult([_trainjob(job, reference, trainer | numbers)], job.notes.notes)


def runtime_result(
    job: ReplicaJob, framework: Framework, placement: Placement, replicated_jobs: list[Obj], plan: JobSetPlan
) -> MigrationResult:
    """Return a TrainingRuntime with the job's name, and its TrainJob."""
    template: Obj = {
        "successPolicy": {"operator": "All", "targetReplicatedJobs": plan.success},
        "replicatedJobs": replicated_jobs,
    }
    if plan.network:
        template["network"] = plan.network
    if job.run_policy.get("ttlSecondsAfterFinished") is not None:
        template["ttlSecondsAfterFinished"] = job.run_policy["ttlSecondsAfterFinished"]
    spec: Obj = {"mlPolicy": plan.ml_policy, "template": {"spec": template}}
    if gang := _gang_policy(job):
        spec["podGroupPolicy"] = gang
        for made in replicated_jobs:
            if made.get("replicas", 1) > 1:  # Trainer counts the pods of one of its Jobs
                job.notes.add("spec.runPolicy.schedulingPolicy", f"the pod group counts one pod of {made['name']} only")
    _note_clean_up(job)
    metadata: Obj = {"name": job.name, "labels": {names.FRAMEWORK_LABEL: framework.name}}
    if "namespace" in job.metadata:
        metadata["namespace"] = job.metadata["namespace"]
    runtime = {"apiVersion": API_VERSION, "kind": "TrainingRuntime", "metadata": metadata, "spec": spec}
    reference = {"kind": "TrainingRuntime", "name": job.name}
    paths = {place.job: f"{place.replicas.path}.template" for place in placement.jobs}
    templates = [paths[made["name"]] for made in replicated_jobs]
    return MigrationResult([runtime, _trainjob(job, reference, plan.trainer)], job.notes.notes, templates)


def replicated_job(job: ReplicaJob, framework: Framework, place: Place, *, is_trainer: bool, count: int | None = None) -> Obj:
    """Return the replicated job of a place.

    Args:
        job: the old job.
        framework: its kind.
        place: the first place of the replicated job.
        is_trainer: whether `spec.trainer` of a TrainJob changes it; Trainer's policies expect the container's name to be `node`.
        count: the number of pods; None leaves it to the policy.

    Raises Invalid if another container has the name that the training container needs.
    """
    template = with_environment(job, framework, place)
    if is_trainer:
        container = container_of(template, framework.container)
        rename_container(job, place, template, container)
        _name_ports(container)
    return build_job(job, place, template, is_trainer=is_trainer, count=count)


def build_job(job: ReplicaJob, place: Place, template: Obj, *, is_trainer: bool, count: int | None) -> Obj:
    """Return the replicated job with a finished pod template; see `replicated_job`."""
    restarts = restarts_of(job, place.replicas)
    note_restarts(job, place.replicas)
    pod = template["spec"]
    pod["restartPolicy"] = restarts.pod
    priority = (job.run_policy.get("schedulingPolicy") or {}).get("priorityClass")
    if priority:
        pod.setdefault("priorityClassName", priority)
    made: Obj = {"name": place.job}
    if place.own_jobs:
        made["replicas"], count = place.count, 1
    numbers = {} if count is None else {"parallelism": count, "completions": count}
    made["template"] = {"spec": {**numbers, **restarts.job, "template": template}}
    if is_trainer:
        made["template"]["metadata"] = {"labels": dict(TRAINER)}
    return made


def _name_ports(container: Obj) -> None:
    """Name the ports of the training container: Trainer's port has no name, and would replace another one without."""
    taken = {port.get("name") for port in container.get("ports") or []}
    for port in container.get("ports") or []:
        name = f"port-{port['containerPort']}"
        if not port.get("name") and name not in taken:
            port["name"] = name
            taken.add(name)


def rename_container(job: ReplicaJob, place: Place, template: Obj, container: Obj) -> None:
    """Give the training container the name `node`. Raises Invalid if another one has it."""
    if container["name"] == names.NODE:
        return
    path = f"{place.replicas.path}.template.spec.containers"
    containers = template["spec"]["containers"] + (template["spec"].get("initContainers") or [])
    if named(containers, names.NODE) is not None:
        text = f"Invalid value: the training container {container['name']!r} gets the name 'node'; rename the other one"
        raise Invalid(f"{job.obj['kind']} cannot be migrated", problems=[Problem(path, text)])
    job.notes.add(path, f"the container {container['name']!r} was renamed to 'node'")
    container["name"] = names.NODE


def note_differences(job: ReplicaJob, placement: Placement) -> None:
    """Add notes on why types that could be nodes of one replicated job are not."""
    leader, *others = placement.jobs
    for other in others:
        one, two, path = leader.replicas, other.replicas, other.replicas.path
        differing = _differences(one.template, two.template, f"{path}.template")
        if one.restart_policy != two.restart_policy:
            differing.append(f"{path}.restartPolicy")
        for where in differing or [path]:
            what = f"differs from {one.type}, so" if differing else f"asks for its number among the {two.name}s:"
            job.notes.add(where, f"{what} these pods are the replicated job {other.job}")


def _differences(one: Any, other: Any, path: str) -> list[str]:
    if isinstance(one, dict) and isinstance(other, dict):
        keys = [*one, *(key for key in other if key not in one)]
        return [found for key in keys for found in _differences(one.get(key), other.get(key), f"{path}.{key}")]
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return [
            found for index, (a, b) in enumerate(zip(one, other, strict=True)) for found in _differences(a, b, f"{path}[{index}]")
        ]
    return [] if one == other else [path]


def _trainjob(job: ReplicaJob, runtime: Obj, trainer: Obj) -> Obj:
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
        labels = {names.QUEUE_LABEL: queue, **(metadata.get("labels") or {})}
        metadata["labels"] = labels
        kept = labels[names.QUEUE_LABEL]
        found = f"became the label {names.QUEUE_LABEL} (Kueue); Volcano uses an annotation"
        lost = f"{queue!r} is lost: the label {names.QUEUE_LABEL} names the queue {kept!r} of Kueue already"
        job.notes.add("spec.runPolicy.schedulingPolicy.queue", found if kept == queue else lost)
    return {"apiVersion": API_VERSION, "kind": "TrainJob", "metadata": metadata, "spec": spec}


def _gang_policy(job: ReplicaJob) -> Obj | None:
    """Convert gang scheduling. A flag of the old operator chose Volcano or the scheduler plugins; now podGroupPolicy does."""
    scheduling = job.run_policy.get("schedulingPolicy") or {}
    path = "spec.runPolicy.schedulingPolicy"
    for name in ("minAvailable", "minResources"):
        if scheduling.get(name) is not None:
            job.notes.add(f"{path}.{name}", "is now computed from all pods of the job")
    if not set(scheduling) & {"minAvailable", "minResources", "scheduleTimeoutSeconds"}:
        return None
    job.notes.add(path, "became podGroupPolicy.coscheduling; for Volcano use podGroupPolicy.volcano: {} instead")
    seconds = scheduling.get("scheduleTimeoutSeconds")
    return {"coscheduling": {"scheduleTimeoutSeconds": seconds} if seconds is not None else {}}


def _needs_runtime(policy: Obj) -> bool:
    """Whether the run policy has fields that only a runtime can express."""
    scheduling = set(policy.get("schedulingPolicy") or {}) - {"queue"}
    return policy.get("ttlSecondsAfterFinished") is not None or policy.get("backoffLimit") is not None or bool(scheduling)


def _pulls_by_default(container: Obj) -> bool:
    """Whether imagePullPolicy is what Kubernetes sets for the image, so that a bundled runtime need not say it."""
    given, image = container.get("imagePullPolicy"), container["image"]
    tag = image.rpartition("/")[2].partition(":")[2]
    default = "Always" if tag in ("", "latest") and "@" not in image else "IfNotPresent"
    return given in (None, default)


def _note_clean_up(job: ReplicaJob) -> None:
    for path, policy in (("spec.runPolicy.cleanPodPolicy", job.run_policy), ("spec.cleanPodPolicy", job.obj["spec"])):
        clean_up = policy.get("cleanPodPolicy")
        if clean_up == "None":
            job.notes.add(path, "None is not kept: running pods are terminated when the job ends, finished pods are kept")
        elif clean_up == "All":
            job.notes.add(path, "All is not kept: finished pods are kept until ttlSecondsAfterFinished deletes the job")
