"""Rules across the fields of one object: what CEL expressions and webhooks check of TrainJobs, runtimes, JobSets and Jobs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from trainwright.api import names
from trainwright.api.errors import Problem
from trainwright.api.objects import Obj, labels_of, name_of, named
from trainwright.api.quantities import parse_quantity

_LABEL = re.compile(r"^[a-z]([-a-z0-9]*[a-z0-9])?$")
_MANAGER = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/[A-Za-z0-9/\-._~%!$&'()*+,;=:]+$")


def trainjob_rules(job: Obj, old: Obj | None) -> Iterator[Problem]:
    """TrainJob: name, quantities, patch managers, and what may change while the job runs."""
    name = name_of(job)
    if name and (len(name) > 63 or not _LABEL.match(name)):
        yield Problem("metadata.name", f'Invalid value: "{name}": must match RFC 1035 DNS label format, at most 63 characters')
    spec = job["spec"]
    if spec["runtimeRef"]["kind"] not in ("TrainingRuntime", "ClusterTrainingRuntime"):
        yield Problem(
            "spec.runtimeRef.kind", f"unsupported runtime: {spec['runtimeRef']['kind']}.{spec['runtimeRef']['apiGroup']}"
        )
    elif spec["runtimeRef"]["apiGroup"] != "trainer.kubeflow.org":
        yield Problem(
            "spec.runtimeRef.apiGroup", f"unsupported runtime: {spec['runtimeRef']['kind']}.{spec['runtimeRef']['apiGroup']}"
        )
    yield from _resource_problems((spec.get("trainer") or {}).get("resourcesPerNode"), "spec.trainer.resourcesPerNode")
    for patch in spec.get("runtimePatches") or []:
        if not _MANAGER.match(patch["manager"]):
            yield Problem("spec.runtimePatches.manager", f'Invalid value: "{patch["manager"]}": must be a domain-prefixed path')
    if old is not None:
        before, after = _without_times(old["spec"].get("runtimePatches")), _without_times(spec.get("runtimePatches"))
        if before != after and not (spec["suspend"] or old["spec"].get("suspend")):
            yield Problem(
                "spec.runtimePatches", "Forbidden: may only be changed while the TrainJob is suspended", "FieldValueForbidden"
            )


def runtime_rules(runtime: Obj, _old: Obj | None) -> Iterator[Problem]:
    """Runtime: each step that Trainer knows by its ancestor label runs once, and holds the container that is overridden."""
    spec = runtime.get("spec") or {}
    jobs = ((spec.get("template") or {}).get("spec") or {}).get("replicatedJobs") or []
    for index, job in enumerate(jobs):
        ancestor = labels_of(job["template"]).get(names.ANCESTOR_LABEL)
        container = names.CONTAINER_OF_ANCESTOR.get(ancestor or "")
        if container is None:
            continue
        path = f"spec.template.spec.replicatedJobs[{index}]"
        if job["replicas"] != 1:
            yield Problem(f"{path}.replicas", f"Invalid value: {job['replicas']}: always must be 1")
        pod_spec = job["template"]["spec"]["template"]["spec"]
        if named(pod_spec.get("containers"), container) is None:
            where = f"{path}.template.spec.template.spec.containers"
            yield Problem(where, f"Invalid value: must have a container named {container!r} for the step {ancestor!r}")


def jobset_rules(jobset: Obj, old: Obj | None) -> Iterator[Problem]:
    """JobSet: names that become DNS labels, dependencies, policy targets; what may change after creation."""
    spec = jobset["spec"]
    jobs = spec.get("replicatedJobs") or []
    known: set[str] = set()
    in_order = spec["startupPolicy"]["startupPolicyOrder"] == "InOrder"
    for index, job in enumerate(jobs):
        path = f"spec.replicatedJobs[{index}]"
        longest = f"{name_of(jobset)}-{job['name']}-{max(job['replicas'] - 1, 0)}"
        completions = job["template"]["spec"].get("completions")
        if completions is not None and job["template"]["spec"]["completionMode"] == "Indexed":
            longest += f"-{max(completions - 1, 0)}-abcde"
        if len(longest) > 63 or not _LABEL.match(longest):
            yield Problem(
                path,
                f"Invalid value: the pod names of {job['name']!r} would be {longest!r}: no DNS label of at most 63 characters",
            )
        for dependency in job.get("dependsOn") or []:
            if dependency["name"] not in known:
                yield Problem(f"{path}.dependsOn", f"Invalid value: {dependency['name']!r} is not an earlier replicatedJob")
        if job.get("dependsOn") and in_order:
            yield Problem("spec", "Invalid value: dependsOn and startupPolicy InOrder are mutually exclusive")
        known.add(job["name"])
    for target in spec["successPolicy"].get("targetReplicatedJobs") or []:
        if target not in known:
            yield Problem("spec.successPolicy.targetReplicatedJobs", f"Invalid value: {target!r} is not a replicatedJob")
    if old is not None:
        yield from _jobset_changes(old["spec"], spec)


def job_rules(job: Obj, old: Obj | None) -> Iterator[Problem]:
    """Job: an Indexed one needs completions; pods must be able to end; the template is fixed once the Job has started."""
    spec = job["spec"]
    if spec["completionMode"] == "Indexed" and spec.get("completions") is None:
        yield Problem("spec.completions", "Required value: when completion mode is Indexed", "FieldValueRequired")
    policy = spec["template"]["spec"].get("restartPolicy")
    if policy not in ("Never", "OnFailure"):
        where = "spec.template.spec.restartPolicy"
        yield Problem(
            where, f'Unsupported value: "{policy or "Always"}": supported values: "OnFailure", "Never"', "FieldValueNotSupported"
        )
    for group in ("initContainers", "containers"):
        for index, container in enumerate(spec["template"]["spec"].get(group) or []):
            path = f"spec.template.spec.{group}[{index}]"
            if not container.get("image"):
                yield Problem(f"{path}.image", "Required value", "FieldValueRequired")
            yield from _resource_problems(container.get("resources"), f"{path}.resources")
    if old is not None:
        started = (old.get("status") or {}).get("startTime") and not old["spec"].get("suspend")
        same = spec["template"] == old["spec"]["template"]
        if not same and (started or not old["spec"].get("suspend")):
            yield Problem("spec.template", "Invalid value: field is immutable")


def _jobset_changes(old: Obj, new: Obj) -> Iterator[Problem]:
    for name in ("network", "successPolicy", "failurePolicy", "startupPolicy", "volumeClaimPolicies"):
        if old.get(name) is not None and new.get(name) is not None and old[name] != new[name]:
            yield Problem(f"spec.{name}", "Invalid value: Value is immutable")
    suspended = bool(old.get("suspend") or new.get("suspend"))
    if _fixed_part(old, suspended) != _fixed_part(new, suspended):
        yield Problem("spec.replicatedJobs", "Invalid value: field is immutable")


def _fixed_part(spec: Obj, suspended: bool) -> list[Any]:
    """The replicated jobs without what may change while the JobSet is suspended."""
    if not suspended:
        return spec.get("replicatedJobs") or []
    fixed = []
    for job in spec.get("replicatedJobs") or []:
        template = job["template"]["spec"]["template"]
        pod_spec = {k: v for k, v in template["spec"].items() if k not in ("nodeSelector", "tolerations", "schedulingGates")}
        metadata = {k: v for k, v in (template.get("metadata") or {}).items() if k not in ("labels", "annotations")}
        job_spec = job["template"]["spec"] | {"template": {"metadata": metadata, "spec": pod_spec}}
        fixed.append(job | {"template": job["template"] | {"spec": job_spec}})
    return fixed


def _without_times(patches: list[Obj] | None) -> list[Obj]:
    return [{k: v for k, v in patch.items() if k != "time"} for patch in patches or []]


def _resource_problems(resources: Obj | None, path: str) -> Iterator[Problem]:
    for group in ("limits", "requests"):
        for name, text in ((resources or {}).get(group) or {}).items():
            try:
                value = parse_quantity(text).value
            except ValueError as error:
                yield Problem(f"{path}.{group}[{name}]", f"Invalid value: {error}")
                continue
            if value < 0:
                yield Problem(f"{path}.{group}[{name}]", f'Invalid value: "{text}": must be greater than or equal to 0')
