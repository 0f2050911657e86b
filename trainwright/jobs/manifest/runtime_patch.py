"""The patches by which a request changes the pods of its runtime: how they mount claims, and how they are scheduled. Pure.

A TrainJob has no field for a pod's priorityClassName or scheduler: the runtime sets those.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainwright.api import names
from trainwright.api.objects import Obj
from trainwright.jobs.manifest.resolved_request import is_initializer, replicated_jobs
from trainwright.jobs.request.setting_values import Topology
from trainwright.jobs.request.workspace import Workspace, is_claim_of

PATCH_MANAGER = "trainwright.dev/scheduling"


def runtime_patch(manager: str, pods: Mapping[str, Obj]) -> Obj:
    """Return an entry of `spec.runtimePatches` by this manager, with a patch of the pod spec for each replicated job by its name."""
    jobs = [{"name": job, "template": {"spec": {"template": {"spec": pod}}}} for job, pod in pods.items()]
    return {"manager": manager, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}}


def claim_volume(name: str, claim: str, workspace: Workspace | None, *, read_only: bool = False) -> tuple[str, Obj]:
    """Return the name of the volume by which a pod mounts a claim, and what its pod spec needs besides: nothing for the workspace's.

    Any other claim gets a volume of that `name`.
    """
    if is_claim_of(workspace, claim):
        return names.INITIALIZER_VOLUME, {}
    source: Obj = {"claimName": claim, **({"readOnly": True} if read_only else {})}
    return name, {"volumes": [{"name": name, "persistentVolumeClaim": source}]}


def scheduling_labels(queue: str, priority_class: str) -> dict[str, str]:
    """Return the Kueue labels of the TrainJob."""
    named = {names.QUEUE_LABEL: queue, names.QUEUE_PRIORITY_LABEL: priority_class}
    return {label: value for label, value in named.items() if value}


def scheduling_patch(
    runtime: Obj,
    *,
    topology: Topology | None,
    node_selector: dict[str, str],
    tolerations: list[dict[str, Any]],
    affinity: dict[str, Any],
) -> Obj | None:
    """Return the patch of the training steps, or None if there are no settings. Initializers are not patched."""
    template: Obj = {}
    jobs = []
    for job in (job for job in replicated_jobs(runtime) if not is_initializer(job)):
        spec: Obj = {}
        if node_selector:
            spec["nodeSelector"] = dict(sorted(node_selector.items()))
        if tolerations:  # a patch replaces the list, so it repeats those of the runtime
            existing = job["template"]["spec"]["template"]["spec"].get("tolerations") or []
            spec["tolerations"] = [*existing, *(toleration for toleration in tolerations if toleration not in existing)]
        if affinity:
            spec["affinity"] = affinity
        pods: Obj = {"spec": spec} if spec else {}
        if topology and topology.pod_annotations():
            pods["metadata"] = {"annotations": topology.pod_annotations()}
        if pods:
            jobs.append({"name": job["name"], "template": {"spec": {"template": pods}}})
    if topology and topology.jobset_annotations():
        template["metadata"] = {"annotations": topology.jobset_annotations()}
    if jobs:
        template["spec"] = {"replicatedJobs": jobs}
    return {"manager": PATCH_MANAGER, "trainingRuntimeSpec": {"template": template}} if template else None
