"""The metadata of objects that belong to a TrainJob: name, namespace and owner reference."""

from __future__ import annotations

from trainwright.api.objects import Obj, owner_reference
from trainwright.materialize.draft import Draft


def owned_object(draft: Draft, api_version: str, kind: str, name: str) -> Obj:
    """Return an object with metadata only, owned by the draft's TrainJob, so that it is deleted with it."""
    reference = owner_reference(
        {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": draft.trainjob["metadata"]}
    )
    metadata = {"name": name, "namespace": draft.namespace, "ownerReferences": [reference]}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}
