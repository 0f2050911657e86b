"""The volume claims of a JobSet: one `<template>-<jobset>` per template, shared by all Jobs that mount it by name."""

from __future__ import annotations

from trainwright.api import names
from trainwright.api.objects import Obj, copy_of, name_of, namespace_of, owner_reference


def volume_claims(jobset: Obj) -> list[Obj]:
    """Return the claims to create. Only those with the policy Delete are deleted with the JobSet."""
    return [_claim(jobset, policy, template) for policy, template in _templates(jobset)]


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


def _templates(jobset: Obj) -> list[tuple[Obj, Obj]]:
    policies = jobset["spec"].get("volumeClaimPolicies") or []
    return [(policy, template) for policy in policies for template in policy.get("templates") or []]


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
