"""Workflows of Argo on an embedded cluster, which serves no kinds but its own: their metadata, as a guard sees it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from factories import pod

from trainwright.api import kinds
from trainwright.api.objects import Obj, uid_of
from trainwright.cluster.protocol import Cluster
from trainwright.controlplane.apiserver.resources import registry
from trainwright.jobs.state.waiters import COMPLETED_LABEL, POD_NODE_ANNOTATION, POD_RUN_LABEL, WORKFLOW, WaitingPod

RUN = "5c1e8a54-3f0c-4f63-9d1c-0f4f6f3f7d11"


@contextmanager
def served_workflows() -> Iterator[None]:
    """Let embedded clusters of this process serve workflows."""
    strategy = registry.Strategy(WORKFLOW, custom=True, generation=True, requires_resource_version=True)
    path = (WORKFLOW.group, WORKFLOW.version, WORKFLOW.plural)
    with (
        patch.dict(registry.STRATEGIES, {WORKFLOW: strategy}),
        patch.dict(registry.STRATEGIES_BY_PATH, {path: strategy}),
        patch.object(kinds, "ALL", (*kinds.ALL, WORKFLOW)),
        patch.dict(kinds._BY_GROUP_KIND, {(WORKFLOW.group, WORKFLOW.kind): WORKFLOW}),
    ):
        yield


def create_workflow(cluster: Cluster, name: str = "flow-1", namespace: str = "default", run: str = RUN) -> Obj:
    """Create the workflow of a run that has just begun."""
    labels = {POD_RUN_LABEL: run, "workflows.argoproj.io/phase": "Running"}
    metadata = {"name": name, "namespace": namespace, "labels": labels}
    return cluster.create({"apiVersion": WORKFLOW.api_version, "kind": WORKFLOW.kind, "metadata": metadata, "spec": {}})


def complete_workflow(cluster: Cluster, workflow: Obj, phase: str = "Failed") -> None:
    """Label a workflow as Argo does at its end."""
    labels = {COMPLETED_LABEL: "true", "workflows.argoproj.io/phase": phase}
    metadata = workflow["metadata"]
    cluster.patch(WORKFLOW, metadata["name"], {"metadata": {"labels": labels}}, metadata["namespace"])


def owner_reference(workflow: Obj) -> Obj:
    """Return the reference by which pods and jobs name their workflow."""
    metadata = workflow["metadata"]
    return {"apiVersion": WORKFLOW.api_version, "kind": WORKFLOW.kind, "name": metadata["name"], "uid": metadata["uid"]}


def create_step_pod(cluster: Cluster, workflow: Obj, number: int = 0, step: str = "train") -> Obj:
    """Create the pod of a try of a step, on a node that no kubelet serves."""
    name = workflow["metadata"]["name"]
    metadata = {
        "annotations": {POD_NODE_ANNOTATION: f"{name}(0).root(0).{step}(0).executor({number})"},
        "ownerReferences": [owner_reference(workflow)],
    }
    return cluster.create(pod(f"{name}-{step}-{number}", labels={POD_RUN_LABEL: RUN}, metadata=metadata, nodeName="elsewhere"))


def note_of(pod_of_step: Obj, workflow: Obj) -> str:
    """Return the note of a pod that waits, as its jobs have it."""
    return WaitingPod.of(pod_of_step, workflow["metadata"]["name"], uid_of(workflow)).as_text()
