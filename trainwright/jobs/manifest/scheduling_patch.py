"""The labels and the runtime patch by which the pods of a job are scheduled. Pure.

A TrainJob has no field for a pod's priorityClassName or scheduler: the runtime sets those.
"""

from __future__ import annotations

from typing import Any

from trainwright.api import names
from trainwright.api.objects import Obj
from trainwright.jobs.manifest.training_steps import is_initializer, replicated_jobs
from trainwright.jobs.request.setting_values import Topology

PATCH_MANAGER = "trainwright.dev/scheduling"
PRIORITY_LABEL = "kueue.x-k8s.io/priority-class"


def scheduling_labels(queue: str, priority_class: str) -> dict[str, str]:
    """Return the Kueue labels of the TrainJob."""
    named = {names.QUEUE_LABEL: queue, PRIORITY_LABEL: priority_class}
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
        pods = _pod_patch(job["template"]["spec"]["template"]["spec"], topology, node_selector, tolerations, affinity)
        if pods:
            jobs.append({"name": job["name"], "template": {"spec": {"template": pods}}})
    if topology and topology.jobset_annotations():
        template["metadata"] = {"annotations": topology.jobset_annotations()}
    if jobs:
        template["spec"] = {"replicatedJobs": jobs}
    return {"manager": PATCH_MANAGER, "trainingRuntimeSpec": {"template": template}} if template else None


def _pod_patch(
    pod_spec: Obj,
    topology: Topology | None,
    node_selector: dict[str, str],
    tolerations: list[dict[str, Any]],
    affinity: dict[str, Any],
) -> Obj:
    spec: Obj = {}
    if node_selector:
        spec["nodeSelector"] = dict(sorted(node_selector.items()))
    if tolerations:  # a patch replaces the list, so it repeats those of the runtime
        existing = pod_spec.get("tolerations") or []
        spec["tolerations"] = [*existing, *(toleration for toleration in tolerations if toleration not in existing)]
    if affinity:
        spec["affinity"] = affinity
    patch: Obj = {"spec": spec} if spec else {}
    if topology and topology.pod_annotations():
        patch["metadata"] = {"annotations": topology.pod_annotations()}
    return patch
