"""Validation of a JobSet by its webhooks: names that become DNS labels, targets that exist, immutable fields."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from trainwright.api.errors import Problem
from trainwright.api.objects import Obj, name_of, namespace_of
from trainwright.api.rules.job import MAX_INT32
from trainwright.api.rules.metadata import label_fault
from trainwright.api.rules.problems import AdmissionRequest, WebhookRule
from trainwright.api.schema.check import ROOT, as_json
from trainwright.api.schema.serialised import serialised

FAILURE_REASONS = ("BackoffLimitExceeded", "DeadlineExceeded", "FailedIndexes", "MaxFailedIndexesExceeded", "PodFailurePolicy")
_RULE_NAME = re.compile(r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?\Z", re.ASCII)
_LABEL_VALUE = re.compile(r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?\Z", re.ASCII)
_LONGEST_LABEL = 63
_JOBS = "spec.replicatedJobs"
_MUTABLE_WHILE_SUSPENDED = ("nodeSelector", "tolerations", "schedulingGates")


def _internal(message: str, at: str) -> Problem:
    """Some rules are reported as internal errors, without a field."""
    return Problem(ROOT, f"Internal error: {message}", "InternalError", at=at)


def _jobs(case: AdmissionRequest) -> list[Obj]:
    return case.new["spec"].get("replicatedJobs") or []


def _created(case: AdmissionRequest) -> bool:
    """Most rules apply on create only: the fields that they read are immutable."""
    return case.old is None


def _managers(case: AdmissionRequest) -> Iterator[Problem]:
    manager = case.new["spec"].get("managedBy")
    if manager is None or not _created(case):
        return
    host, slash, path = manager.partition("/")
    if not (host and slash and path):
        yield Problem(
            "spec.managedBy", f'Invalid value: {as_json(manager)}: must be a domain-prefixed path (such as "acme.io/foo")'
        )
    if len(manager) > _LONGEST_LABEL:
        yield Problem("spec.managedBy", f"Too long: may not be more than {_LONGEST_LABEL} bytes", "FieldValueTooLong")


def _subdomain(case: AdmissionRequest) -> Iterator[Problem]:
    subdomain = (case.new["spec"].get("network") or {}).get("subdomain")
    if not subdomain or not _created(case):
        return
    where = "spec.network.subdomain"
    if len(subdomain) > _LONGEST_LABEL:
        yield Problem(where, f"Invalid value: {as_json(subdomain)}: must be no more than {_LONGEST_LABEL} characters")
    elif fault := label_fault(subdomain):
        yield Problem(where, f"Invalid value: {as_json(subdomain)}: {fault}")


def _names(case: AdmissionRequest) -> Iterator[Problem]:
    """The generated name of every pod must be a DNS label."""
    if not _created(case):
        return
    for index, job in enumerate(_jobs(case)):
        path, spec = f"{_JOBS}[{index}]", job["template"].get("spec") or {}
        name = f"{name_of(case.new)}-{job['name']}-{max(job['replicas'] - 1, 0)}"
        yield from _name_faults(name, name, "job", f"{path}.name")
        if spec.get("completionMode") == "Indexed" and spec.get("completions") is not None:
            yield from _name_faults(f"{name}-{max(spec['completions'] - 1, 0)}-abcde", name, "pod", f"{path}.name")
        group = job.get("groupName") or ""
        if (fault := label_fault(group)) or len(group) > _LONGEST_LABEL:
            fault = fault or f"must be no more than {_LONGEST_LABEL} characters"
            yield Problem(f"{path}.groupName", f"Invalid value: {as_json(group)}: {fault}")


def _name_faults(name: str, shown: str, what: str, where: str) -> Iterator[Problem]:
    if len(name) > _LONGEST_LABEL:
        message = f"JobSet name is too long, {what} names generated for this JobSet will exceed {_LONGEST_LABEL} characters"
        yield Problem(where, f"Invalid value: {as_json(shown)}: {message}")
    elif fault := label_fault(name):
        yield Problem(where, f"Invalid value: {as_json(shown)}: {fault}")


def _sizes(case: AdmissionRequest) -> Iterator[Problem]:
    for index, job in enumerate(_jobs(case)):
        parallelism = (job["template"].get("spec") or {}).get("parallelism")
        if _created(case) and job["replicas"] * (1 if parallelism is None else parallelism) > MAX_INT32:
            message = f"the product of replicas and parallelism must not exceed {MAX_INT32} for replicatedJob '{job['name']}'"
            yield _internal(message, f"{_JOBS}[{index}].replicas")


def _dependencies(case: AdmissionRequest) -> Iterator[Problem]:
    """A job may depend only on jobs before it in the list, so the first on none, and no job on itself."""
    known: set[str] = set()
    for index, job in enumerate(_jobs(case) if _created(case) else []):
        where = f"{_JOBS}[{index}].dependsOn"
        if index == 0 and job.get("dependsOn") is not None:
            yield _internal("DependsOn can't be set for the first ReplicatedJob", where)
        else:
            for position, dependency in enumerate(job.get("dependsOn") or []):
                if dependency["name"] not in known:
                    message = f"replicatedJob: {job['name']} cannot depend on replicatedJob: {dependency['name']}"
                    yield _internal(message, f"{where}[{position}].name")
        known.add(job["name"])


def _success_targets(case: AdmissionRequest) -> Iterator[Problem]:
    known = {job["name"] for job in _jobs(case)}
    where = "spec.successPolicy.targetReplicatedJobs"
    for index, target in enumerate((case.new["spec"].get("successPolicy") or {}).get("targetReplicatedJobs") or []):
        if _created(case) and target not in known:
            message = f"invalid replicatedJob name '{target}' does not appear in .spec.ReplicatedJobs"
            yield _internal(message, f"{where}[{index}]")


def _failure_rules(case: AdmissionRequest) -> Iterator[Problem]:
    if not _created(case):
        return
    rules = (case.new["spec"].get("failurePolicy") or {}).get("rules") or []
    known, named = {job["name"] for job in _jobs(case)}, dict[str, list[int]]()
    for index, rule in enumerate(rules):
        path, name = f"spec.failurePolicy.rules[{index}]", rule.get("name", "")
        named.setdefault(name, []).append(index)
        yield from _rule_name_faults(name, f"{path}.name")
        for target in rule.get("targetReplicatedJobs") or []:
            if target not in known:
                message = f"invalid replicatedJob name '{target}' in failure policy does not appear in .spec.ReplicatedJobs"
                yield _internal(message, f"{path}.targetReplicatedJobs")
        for reason in rule.get("onJobFailureReasons") or []:
            if reason not in FAILURE_REASONS:
                message = f"invalid job failure reason '{reason}' in failure policy is not a recognized job failure reason"
                yield _internal(message, f"{path}.onJobFailureReasons")
    for name, places in named.items():
        if len(places) > 1:
            indices = " ".join(map(str, places))
            message = f"rule names are not unique, rules with indices [{indices}] all have the same name '{name}'"
            yield _internal(message, f"spec.failurePolicy.rules[{places[1]}].name")


def _rule_name_faults(name: str, where: str) -> Iterator[Problem]:
    if not 1 <= len(name) <= 128:
        yield _internal(f"invalid failure policy rule name of length {len(name)}, it must have 1 to 128 characters", where)
    elif not _RULE_NAME.match(name):
        message = (
            f"invalid failure policy rule name '{name}', a failure policy rule name must start with an alphabetic character, "
            "optionally followed by a string of alphanumeric characters or '_,:', and must end with an alphanumeric character or '_'"
        )
        yield _internal(message, where)


def _coordinator(case: AdmissionRequest) -> Iterator[Problem]:
    """The coordinator must be an existing pod whose address is a valid label value."""
    coordinator = case.new["spec"].get("coordinator")
    if coordinator is None or not _created(case):
        return
    where, name = "spec.coordinator", coordinator["replicatedJob"]
    job = next((job for job in _jobs(case) if job["name"] == name), None)
    if job is None:
        yield _internal(f"coordinator job '{name}' does not exist", f"{where}.replicatedJob")
        return
    spec, job_index, pod_index = job["template"].get("spec") or {}, coordinator.get("jobIndex", 0), coordinator.get("podIndex", 0)
    if not 0 <= job_index < job["replicas"]:
        yield _internal(f"coordinator job index {job_index} is invalid for replicatedJob {name}", f"{where}.jobIndex")
    if spec.get("completionMode") != "Indexed" or spec.get("completions") is None:
        message = "job for coordinator pod must be indexed completion mode, and completions number must be set"
        yield _internal(message, f"{where}.replicatedJob")
    elif not 0 <= pod_index < spec["completions"]:
        yield _internal(f"coordinator pod index {pod_index} is invalid for replicatedJob {name}", f"{where}.podIndex")
    subdomain = (case.new["spec"].get("network") or {}).get("subdomain") or name_of(case.new)
    address = f"{name_of(case.new)}-{name}-{job_index}-{pod_index}.{subdomain}"
    if len(address) > _LONGEST_LABEL or not _LABEL_VALUE.match(address):
        yield Problem(where, f"Invalid value: {as_json(address)}: must be a label value of at most {_LONGEST_LABEL} characters")


def _claims(case: AdmissionRequest) -> Iterator[Problem]:
    """Claim names must be unique, mounted by a container, and not used by another volume."""
    if not _created(case):
        return
    seen: set[str] = set()
    mounted, declared = _volume_names(case)
    for p, policy in enumerate(case.new["spec"].get("volumeClaimPolicies") or []):
        retention = (policy.get("retentionPolicy") or {}).get("whenDeleted", "Delete")
        for t, template in enumerate(policy.get("templates") or []):
            path = f"spec.volumeClaimPolicies[{p}].template[{t}]"
            at, name = f"spec.volumeClaimPolicies[{p}].templates[{t}]", name_of(template)
            if name in seen:
                message = f"Invalid value: {as_json(name)}: names must be unique for VolumeClaimPolicies template"
                yield Problem(f"{path}.name", message, at=f"{at}.metadata.name")
            seen.add(name)
            if name not in mounted:
                message = f"Invalid value: {as_json(name)}: no container mounts a volume of that name"
                yield Problem(f"{path}.name", message, at=f"{at}.metadata.name")
            if name in declared:
                message = f"Invalid value: {as_json(name)}: a replicatedJob has a volume of that name of its own"
                yield Problem(f"{path}.name", message, at=f"{at}.metadata.name")
            claim = f"{name}-{name_of(case.new)}"
            if len(claim) > _LONGEST_LABEL:
                message = f"Invalid value: {as_json(claim)}: must be no more than {_LONGEST_LABEL} characters"
                yield Problem(f"{path}.name", message, at=f"{at}.metadata.name")
            if retention == "Delete" and _exists(case, claim):
                where = f"spec.volumeClaimPolicies[{p}].retentionPolicy.whenDeleted"
                yield Problem(where, 'Invalid value: "Delete": retentionPolicy must be retain when PVC exists')


def _exists(case: AdmissionRequest, claim: str) -> bool:
    return case.lookup is not None and case.lookup("PersistentVolumeClaim", namespace_of(case.new), claim) is not None


def _volume_names(case: AdmissionRequest) -> tuple[set[str], set[str]]:
    """Returns the names of mounted volumes and of declared volumes."""
    mounted, declared = set[str](), set[str]()
    for job in _jobs(case):
        pod = ((job["template"].get("spec") or {}).get("template") or {}).get("spec") or {}
        declared |= {volume["name"] for volume in pod.get("volumes") or []}
        for container in [*(pod.get("initContainers") or []), *(pod.get("containers") or [])]:
            mounted |= {mount["name"] for mount in container.get("volumeMounts") or []}
    return mounted, declared


def _changes(case: AdmissionRequest) -> Iterator[Problem]:
    """Replicated jobs are immutable, except for scheduling fields, labels and annotations of pods while the JobSet is suspended."""
    if case.old is None:
        return
    old, new = case.old.get("spec") or {}, case.new["spec"]
    suspended = bool(old.get("suspend") or new.get("suspend"))
    if _fixed(old, suspended) != _fixed(new, suspended):
        yield Problem(_JOBS, f"Invalid value: {serialised(_jobs(case))}: field is immutable")
    if old.get("managedBy") != new.get("managedBy"):
        yield Problem("spec.managedBy", f"Invalid value: {as_json(new.get('managedBy'))}: field is immutable")


def _fixed(spec: Obj, suspended: bool) -> list[Any]:
    """The replicated jobs without their mutable fields."""
    jobs = spec.get("replicatedJobs") or []
    if not suspended:
        return jobs
    fixed = []
    for job in jobs:
        job_spec = job["template"].get("spec") or {}
        template = job_spec.get("template") or {}
        pod = {key: value for key, value in (template.get("spec") or {}).items() if key not in _MUTABLE_WHILE_SUSPENDED}
        metadata = {key: value for key, value in (template.get("metadata") or {}).items() if key not in ("labels", "annotations")}
        fixed.append(job | {"template": job["template"] | {"spec": job_spec | {"template": {"metadata": metadata, "spec": pod}}}})
    return fixed


JOBSET_RULES = (
    WebhookRule("spec.managedBy", "a domain-prefixed path", _managers),
    WebhookRule("spec.network.subdomain", "a DNS label", _subdomain),
    WebhookRule(f"{_JOBS}[].name", "generated names of Jobs and Pods are DNS labels", _names),
    WebhookRule(f"{_JOBS}[].replicas", "total number of pods fits into 32 bits", _sizes),
    WebhookRule(f"{_JOBS}[].dependsOn", "jobs before it in the list", _dependencies),
    WebhookRule("spec.successPolicy.targetReplicatedJobs", "existing replicated jobs", _success_targets),
    WebhookRule("spec.failurePolicy.rules", "unique names, known reasons, existing replicated jobs", _failure_rules),
    WebhookRule("spec.coordinator", "an existing indexed pod", _coordinator),
    WebhookRule("spec.volumeClaimPolicies", "unique names that containers mount", _claims),
    WebhookRule(_JOBS, "immutable, except for pod scheduling while the JobSet is suspended", _changes),
)
