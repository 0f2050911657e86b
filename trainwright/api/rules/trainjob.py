"""What Trainer's webhooks do with a TrainJob: timestamps on its patches, and the rules that do not need the patched template.

Rules that need the runtime's template are with their policy in `materialize`. Beside them are those for a runtime, and what Trainer
says nothing of: settings of a TrainJob that take no effect with its runtime, or another than expected.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from trainwright.api import names
from trainwright.api.errors import Problem
from trainwright.api.objects import Obj, labels_of, name_of, named, namespace_of
from trainwright.api.rules.metadata import NOT_SUBDOMAIN, is_subdomain
from trainwright.api.rules.problems import AdmissionRequest, WebhookRule
from trainwright.api.schema.published import struct_named
from trainwright.api.schema.round_trip import rewrite
from trainwright.api.schema.serialised import serialised

_GROUP = "trainer.kubeflow.org"
_NAMESPACED, _CLUSTER = "TrainingRuntime", "ClusterTrainingRuntime"
_PATH = re.compile(r"^[A-Za-z0-9/\-._~%!$&'()*+,;=:]+\Z")
_PATCHES = "spec.runtimePatches"
DEPRECATED = (
    '{kind} "{name}" is deprecated and will be removed in a future release of Kubeflow Trainer. See runtime deprecation policy: '
    "https://trainer.kubeflow.org/en/latest/operator-guides/runtime.html#runtime-deprecation-policy"
)
_UNCHECKED_LABEL = "trainer.kubeflow.org/webhook-validation"
_JOBS = "spec.template.spec.replicatedJobs"
_OF_CONTAINER = ("image", "command", "args", "env", "resourcesPerNode")


def trainjob_defaults(job: Obj, old: Obj | None, now: str) -> None:
    """Set, in place, the time of the last change of each patch; a time set by the user is kept on a new patch. Needs a clock.

    If anything changes, the whole TrainJob is normalized as the webhook serializes it.
    """
    stamped = False
    before = {patch.get("manager"): patch for patch in ((old or {}).get("spec") or {}).get("runtimePatches") or []}
    for patch in (job.get("spec") or {}).get("runtimePatches") or []:
        former = before.get(patch.get("manager"))
        if former is None:
            time = patch.get("time") or now
        elif _timeless(former) == _timeless(patch):
            time = former.get("time") or patch.get("time") or now
        else:
            time = now or patch.get("time")
        if time and time != patch.get("time"):
            patch["time"] = time
            stamped = True
    if stamped:
        rewrite(struct_named("TrainJob"), job)


def trainjob_warnings(case: AdmissionRequest) -> Iterator[str]:
    """Warns about a deprecated runtime, which still works, and about settings without effect, which Trainer itself does not."""
    reference = _reference(case.new)
    kind, name = reference.get("kind"), str(reference.get("name"))
    if kind not in (_NAMESPACED, _CLUSTER) or case.lookup is None:
        return
    runtime = case.lookup(kind, "" if kind == _CLUSTER else namespace_of(case.new), name)
    if runtime is None:
        return
    yield from idle_settings(case.new, runtime)
    if kind == _CLUSTER and is_deprecated(runtime):
        yield "Referenced " + DEPRECATED.format(kind=_CLUSTER, name=name_of(runtime))


def is_deprecated(runtime: Obj) -> bool:
    return labels_of(runtime).get(names.SUPPORT_LABEL) == "deprecated"


def _reference(job: Obj) -> Obj:
    return (job.get("spec") or {}).get("runtimeRef") or {}


def _patches(job: Obj | None) -> list[Obj]:
    return ((job or {}).get("spec") or {}).get("runtimePatches") or []


def _timeless(patch: Obj) -> Obj:
    return {key: value for key, value in patch.items() if key != "time"}


def _unsupported_runtime(case: AdmissionRequest) -> Iterator[Problem]:
    reference = _reference(case.new)
    kind, group = reference.get("kind", ""), reference.get("apiGroup", "")
    if kind in (_NAMESPACED, _CLUSTER) and group == _GROUP:
        return
    where = "spec.runtimeRef.kind" if kind not in (_NAMESPACED, _CLUSTER) else "spec.runtimeRef.apiGroup"
    called = f"{kind}.{group}" if reference else ""
    yield Problem("", f"unsupported runtime: {called}", at=where if reference else "spec")


def _missing_runtime(case: AdmissionRequest) -> Iterator[Problem]:
    if case.lookup is None:
        return
    reference = _reference(case.new)
    kind, name = reference["kind"], reference["name"]
    namespace = namespace_of(case.new) if kind == _NAMESPACED else ""
    if case.lookup(kind, namespace, name) is None:
        field = "spec.RuntimeRef" if kind == _CLUSTER else "spec.runtimeRef"
        called = kind[0].lower() + kind[1:]
        message = (
            f'Invalid value: {serialised(reference)}: {kind}.{_GROUP} "{name}" not found: '
            f"specified {called} must be created before the TrainJob is created"
        )
        yield Problem(field, message, at="spec.runtimeRef.name")


def _late_patches(case: AdmissionRequest) -> Iterator[Problem]:
    if case.old is None or list(map(_timeless, _patches(case.old))) == list(map(_timeless, _patches(case.new))):
        return
    if not (case.new["spec"].get("suspend") or (case.old.get("spec") or {}).get("suspend")):
        message = "Forbidden: RuntimePatches can only be modified when the TrainJob is suspended before or after the update"
        yield Problem(_PATCHES, message, "FieldValueForbidden")
    if case.lookup is None:
        return
    jobset = case.lookup("JobSet", namespace_of(case.new), name_of(case.new)) or {}
    for status in (jobset.get("status") or {}).get("replicatedJobsStatus") or []:
        if status.get("active"):
            message = f"Forbidden: RuntimePatches cannot be modified while the replicatedJob {status.get('name')} is active"
            yield Problem(_PATCHES, message, "FieldValueForbidden")


def _unnamed_managers(case: AdmissionRequest) -> Iterator[Problem]:
    for index, patch in enumerate(_patches(case.new)):
        for why in _manager_faults(patch["manager"]):
            yield Problem(f"{_PATCHES}.manager", f"Invalid value: {why}", at=f"{_PATCHES}[{index}].manager")


def _manager_faults(manager: str) -> Iterator[str]:
    """Why a manager is not a domain-prefixed path such as `acme.io/foo`."""
    host, slash, path = manager.partition("/")
    if not (host and slash and path):
        yield f'"{manager}": must be a domain-prefixed path (such as "acme.io/foo")'
        return
    if not is_subdomain(host):
        yield f'"{host}": {NOT_SUBDOMAIN}'
    if not _PATH.match(path):
        yield f"\"{path}\": Invalid path (regex used for validation is '{_PATH.pattern[1:-2]}')"


def _variables_by_patch(case: AdmissionRequest) -> Iterator[Problem]:
    """Variables of these three containers come from the TrainJob itself."""
    reserved = sorted(names.CONTAINER_OF_ANCESTOR.values())
    for index, patch in enumerate(_patches(case.new)):
        for path, container in _patched_containers(patch):
            if container["name"] in reserved and container.get("env"):
                shown = serialised(_patches(case.new))
                message = f"Invalid value: {shown}: must not have envs for the {', '.join(reserved)} containers"
                yield Problem(_PATCHES, message, at=f"{_PATCHES}[{index}].{path}.env")


def _patched_containers(patch: Obj) -> Iterator[tuple[str, Any]]:
    template = (patch.get("trainingRuntimeSpec") or {}).get("template") or {}
    for j, job in enumerate((template.get("spec") or {}).get("replicatedJobs") or []):
        pod = (((job.get("template") or {}).get("spec") or {}).get("template") or {}).get("spec") or {}
        for c, container in enumerate(pod.get("containers") or []):
            path = f"trainingRuntimeSpec.template.spec.replicatedJobs[{j}].template.spec.template.spec.containers[{c}]"
            yield path, container


TRAINJOB_RULES = (
    WebhookRule(
        "spec.runtimeRef.kind", "ClusterTrainingRuntime or TrainingRuntime of Trainer's group", _unsupported_runtime, alone=True
    ),
    WebhookRule("spec.runtimeRef", "an existing runtime, also on update", _missing_runtime, alone=True),
    WebhookRule(_PATCHES, "immutable unless the TrainJob is suspended and has no active jobs", _late_patches),
    WebhookRule(f"{_PATCHES}.manager", "a domain-prefixed path", _unnamed_managers),
    WebhookRule(_PATCHES, "no variables for containers that the TrainJob itself overrides", _variables_by_patch),
)


def cluster_runtime_warnings(case: AdmissionRequest) -> Iterator[str]:
    """On create only, and only for ClusterTrainingRuntimes."""
    if case.old is None and is_deprecated(case.new) and not _is_unchecked(case.new):
        yield DEPRECATED.format(kind="ClusterTrainingRuntime", name=name_of(case.new))


def _is_unchecked(runtime: Obj) -> bool:
    return labels_of(runtime).get(_UNCHECKED_LABEL) == "disabled"


def _steps(case: AdmissionRequest) -> Iterator[tuple[str, str, Any]]:
    """The replicated jobs with an ancestor label: path, label and job."""
    if _is_unchecked(case.new):
        return
    template = (case.new.get("spec") or {}).get("template") or {}
    for index, job in enumerate((template.get("spec") or {}).get("replicatedJobs") or []):
        step = labels_of(job["template"]).get(names.ANCESTOR_LABEL, "")
        if step in names.CONTAINER_OF_ANCESTOR:
            yield f"{_JOBS}[{index}]", step, job


def _step_problems(case: AdmissionRequest) -> Iterator[Problem]:
    for path, step, job in _steps(case):
        if job["replicas"] != 1:
            yield Problem(f"{path}.replicas", f"Invalid value: {job['replicas']}: always must be 1")
        containers = job["template"]["spec"]["template"].get("spec", {}).get("containers") or []
        if named(containers, names.CONTAINER_OF_ANCESTOR[step]) is None:
            shown = serialised(containers, containers=True)
            message = f"Invalid value: {shown}: must contain the required container for the ancestor: {step}"
            yield Problem(f"{path}.template.spec.template.spec.containers", message)


def _on_create(case: AdmissionRequest) -> Iterator[Problem]:
    return iter(()) if case.old is not None else _step_problems(case)


CLUSTER_RUNTIME_RULES = (WebhookRule(f"{_JOBS}[]", "one replica, and the container of its step", _step_problems),)
NAMESPACED_RUNTIME_RULES = (WebhookRule(f"{_JOBS}[]", "the same, on create", _on_create),)


def idle_settings(trainjob: Obj, runtime: Obj) -> Iterator[str]:
    """Yield a warning for each setting of `spec.trainer` that the runtime does not use, or that trains nothing.

    Trainer applies `numNodes` to the replicated job with the ancestor `trainer`, and the other fields to its container `node`.
    `resourcesPerNode` alone, without those of the runtime, decides on the number of processes.
    """
    trainer = (trainjob.get("spec") or {}).get("trainer") or {}
    jobs = ((((runtime.get("spec") or {}).get("template") or {}).get("spec")) or {}).get("replicatedJobs") or []
    steps = [job for job in jobs if _ancestor(job) == names.ANCESTOR_TRAINER]
    policy = (runtime.get("spec") or {}).get("mlPolicy") or {}
    counts_nodes = bool({"mpi", "flux"} & policy.keys())  # in pods of their own choice, and never 0
    set_fields = [field for field in _OF_CONTAINER if trainer.get(field)]
    if not steps:
        idle = [*(["numNodes"] if trainer.get("numNodes") is not None and not counts_nodes else []), *set_fields]
        label = f"{names.ANCESTOR_LABEL}={names.ANCESTOR_TRAINER}"
        yield from (
            f"spec.trainer.{field} takes no effect: no pod template of the runtime has the label {label}" for field in idle
        )
    else:
        containers = [container for job in steps for container in _containers(job)]
        if not any(container.get("name") == names.NODE for container in containers):
            found = ", ".join(str(container.get("name")) for container in containers) or "none"
            for field in set_fields:
                yield f"spec.trainer.{field} takes no effect: the runtime's training step has no container {names.NODE!r} ({found})"
        else:
            yield from _lost_gpus(trainer, containers)
    if trainer.get("numNodes") == 0 and not counts_nodes:
        yield "spec.trainer.numNodes is 0: no node is started, and the TrainJob is Complete at once"


def _lost_gpus(trainer: Obj, containers: list[Obj]) -> Iterator[str]:
    """Warn of resources without a GPU where the runtime has some: the number of processes is then not that of the GPUs."""
    given = trainer.get("resourcesPerNode")
    node = next(container for container in containers if container.get("name") == names.NODE)
    gpus = _gpus(node.get("resources") or {})
    if given and gpus and not _gpus(given) and trainer.get("numProcPerNode") is None:
        (resource, amount), *_ = gpus.items()
        yield (
            f"spec.trainer.resourcesPerNode names no GPU, but the runtime requests {resource}: {amount}: the number of processes "
            f"comes from these resources alone; add {resource}, or set numProcPerNode"
        )


def _gpus(resources: Obj) -> dict[str, Any]:
    return {
        name: amount
        for group in ("limits", "requests")
        for name, amount in (resources.get(group) or {}).items()
        if "gpu" in name.lower() and str(amount) != "0"
    }


def _ancestor(job: Obj) -> str:
    template = job.get("template") or {}
    return str(labels_of(template).get(names.ANCESTOR_LABEL) or "")


def _containers(job: Obj) -> list[Obj]:
    pod = (((job.get("template") or {}).get("spec") or {}).get("template") or {}).get("spec") or {}
    containers: list[Obj] = pod.get("containers") or []
    return containers
