"""The workflow of a pipeline whose step submits a job."""

from __future__ import annotations

from dataclasses import dataclass

from trainwright.api.kinds import Kind
from trainwright.api.objects import Obj

WORKFLOW = Kind("argoproj.io", "v1alpha1", "Workflow", "workflows")
COMPLETED_LABEL = "workflows.argoproj.io/completed"
"""`true` on a workflow that has ended; a run that is retried loses it again."""
POD_RUN_LABEL = "pipeline/runid"
"""Label of the pods of a run's steps."""
POD_NODE_ANNOTATION = "workflows.argoproj.io/node-name"
"""Annotation of a step's pod: the path of its node in the workflow, with attempts."""


@dataclass(frozen=True)
class Workflow:
    """`reference` is the owner reference for the workflow's object, which is in `namespace`."""

    name: str
    namespace: str
    reference: Obj


def workflows_of(trainjob: Obj) -> tuple[str, ...]:
    """Return the names of the workflows that own a job: it is deleted with the last of them."""
    owners = trainjob["metadata"].get("ownerReferences") or []
    return tuple(str(owner.get("name")) for owner in owners if owner.get("kind") == "Workflow")
