"""The head of every object that belongs to a TrainJob: its name, its namespace and its controller."""

from __future__ import annotations

from trainwright.api.objects import Obj, owner_reference
from trainwright.materialize.draft import Draft


def owned(draft: Draft, api_version: str, kind: str, name: str) -> Obj:
    """An object with metadata only, owned by the draft's TrainJob so that it goes when the TrainJob goes."""
    reference = owner_reference(
        {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": draft.trainjob["metadata"]}
    )
    metadata = {"name": name, "namespace": draft.namespace, "ownerReferences": [reference]}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}
