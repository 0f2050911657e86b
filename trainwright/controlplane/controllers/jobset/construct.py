"""Builds the objects of a JobSet: child Jobs with labels, the headless Service, and volume claims.

Claims are one `<template>-<jobset>` per template, shared by all Jobs that mount it by name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator

from trainwright.api import names
from trainwright.api.objects import Obj, copy_of, name_of, namespace_of, owner_reference, uid_of
from trainwright.controlplane.controllers.jobset.placement import NODE_SELECTOR, placement_annotations, select_domain

_PREFIX = "jobset.sigs.k8s.io/"


def child_jobs(jobset: Obj, replicated: Obj, *, exclude: Collection[str] = frozenset()) -> Iterator[Obj]:
    """Yield the Jobs of a replicated job for the current attempt, in index order, except those with names in `exclude`."""
    for index in range(replicated.get("replicas", 1)):
        if job_name(jobset, replicated, index) not in exclude:
            yield _job(jobset, replicated, index)


def _job(jobset: Obj, replicated: Obj, index: int) -> Obj:
    template = copy_of(replicated["template"])
    name = job_name(jobset, replicated, index)
    keys = _job_keys(jobset, replicated, index)
    placement = placement_annotations(jobset, replicated)
    spec = template["spec"]
    spec["suspend"] = bool(jobset["spec"].get("suspend"))
    pods = spec["template"]
    metadata = _with_keys(template.get("metadata"), keys, placement)
    pods["metadata"] = _with_keys(pods.get("metadata"), keys, placement)
    if (jobset["spec"].get("network") or {}).get("enableDNSHostnames") is not False:
        pods["spec"]["subdomain"] = subdomain(jobset)
    if NODE_SELECTOR in placement:
        select_domain(pods["spec"], namespace_of(jobset), name)
    add_claims(jobset, pods["spec"])
    metadata |= {"name": name, "namespace": namespace_of(jobset), "ownerReferences": [owner_reference(jobset)]}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def _job_keys(jobset: Obj, replicated: Obj, index: int) -> dict[str, str]:
    """Return keys that identify a Job in its JobSet; each is set as a label and as an annotation."""
    jobs = jobset["spec"].get("replicatedJobs") or []
    group = replicated.get("groupName") or "default"
    before = jobs[: [job["name"] for job in jobs].index(replicated["name"])]
    in_group = [job for job in jobs if (job.get("groupName") or "default") == group]
    before_in_group = [job for job in before if (job.get("groupName") or "default") == group]
    key = f"{namespace_of(jobset)}/{job_name(jobset, replicated, index)}"
    keys = {
        names.JOBSET_NAME_LABEL: name_of(jobset),
        names.JOBSET_UID_LABEL: uid_of(jobset),
        names.REPLICATED_JOB_LABEL: replicated["name"],
        f"{_PREFIX}replicatedjob-replicas": str(replicated.get("replicas", 1)),
        f"{_PREFIX}global-replicas": str(_replicas(jobs)),
        f"{_PREFIX}job-index": str(index),
        f"{_PREFIX}job-global-index": str(_replicas(before) + index),
        f"{_PREFIX}job-key": hashlib.sha1(key.encode(), usedforsecurity=False).hexdigest(),
        names.RESTART_ATTEMPT_LABEL: str((jobset.get("status") or {}).get("restarts") or 0),
        f"{_PREFIX}group-name": group,
        f"{_PREFIX}group-replicas": str(_replicas(in_group)),
        f"{_PREFIX}job-group-index": str(_replicas(before_in_group) + index),
    }
    coordinator = jobset["spec"].get("coordinator")
    if coordinator:
        numbers = f"{coordinator.get('jobIndex', 0)}-{coordinator.get('podIndex', 0)}"
        keys[f"{_PREFIX}coordinator"] = f"{name_of(jobset)}-{coordinator['replicatedJob']}-{numbers}.{subdomain(jobset)}"
    return keys


def _replicas(jobs: list[Obj]) -> int:
    return sum(job.get("replicas", 1) for job in jobs)


def _with_keys(metadata: Obj | None, keys: dict[str, str], notes: dict[str, str]) -> Obj:
    metadata = dict(metadata or {})
    metadata["labels"] = {**(metadata.get("labels") or {}), **keys}
    metadata["annotations"] = {**(metadata.get("annotations") or {}), **keys, **notes}
    return metadata


def job_name(jobset: Obj, replicated: Obj, index: int) -> str:
    return f"{name_of(jobset)}-{replicated['name']}-{index}"


def subdomain(jobset: Obj) -> str:
    return str((jobset["spec"].get("network") or {}).get("subdomain") or name_of(jobset))


def headless_service(jobset: Obj) -> Obj | None:
    """Return the Service for the pods' host names, or None if DNS host names are disabled."""
    network = jobset["spec"].get("network") or {}
    if network.get("enableDNSHostnames") is False:
        return None
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": subdomain(jobset), "namespace": namespace_of(jobset), "ownerReferences": [owner_reference(jobset)]},
        "spec": {"clusterIP": "None", "selector": {names.JOBSET_NAME_LABEL: name_of(jobset)}}
        | ({"publishNotReadyAddresses": True} if network.get("publishNotReadyAddresses", True) else {}),
    }


def volume_claims(jobset: Obj) -> list[Obj]:
    """Return the claims to create. Only those with the policy Delete are deleted with the JobSet."""
    return [_claim(jobset, policy, template) for policy, template in _templates(jobset)]


def _claim(jobset: Obj, policy: Obj, template: Obj) -> Obj:
    given = template.get("metadata") or {}
    metadata: Obj = {
        "name": claim_name(jobset, template),
        "namespace": namespace_of(jobset),
        "labels": {**(given.get("labels") or {}), names.JOBSET_NAME_LABEL: name_of(jobset)},
    }
    if given.get("annotations"):
        metadata["annotations"] = dict(given["annotations"])
    if (policy.get("retentionPolicy") or {}).get("whenDeleted", "Delete") == "Delete":
        metadata["ownerReferences"] = [owner_reference(jobset)]
    spec = copy_of(template.get("spec") or {})
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}


def _templates(jobset: Obj) -> list[tuple[Obj, Obj]]:
    policies = jobset["spec"].get("volumeClaimPolicies") or []
    return [(policy, template) for policy in policies for template in policy.get("templates") or []]


def add_claims(jobset: Obj, pod_spec: Obj) -> None:
    """Add volumes for the claim templates that the pods mount by name."""
    containers = [*(pod_spec.get("initContainers") or []), *(pod_spec.get("containers") or [])]
    mounted = {mount["name"] for container in containers for mount in container.get("volumeMounts") or []}
    for _, template in _templates(jobset):
        name = (template.get("metadata") or {}).get("name")
        if name in mounted:
            source = {"claimName": claim_name(jobset, template)}
            pod_spec["volumes"] = [*(pod_spec.get("volumes") or []), {"name": name, "persistentVolumeClaim": source}]


def claim_name(jobset: Obj, template: Obj) -> str:
    return f"{(template.get('metadata') or {}).get('name', '')}-{name_of(jobset)}"
