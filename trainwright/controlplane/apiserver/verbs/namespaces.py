"""The namespace lifecycle: rejects creation in missing or terminating namespaces, and detects empty terminating ones."""

from __future__ import annotations

from trainwright.api import kinds
from trainwright.api.kinds import Kind
from trainwright.api.objects import Obj, is_deleting, name_of, namespace_of
from trainwright.controlplane.apiserver.resources.registry import STRATEGIES
from trainwright.controlplane.apiserver.storage.object_table import Record
from trainwright.controlplane.apiserver.storage.store import Store
from trainwright.controlplane.apiserver.storage.views import view_of
from trainwright.controlplane.apiserver.verbs.deletion import can_be_removed
from trainwright.controlplane.apiserver.wire.api_errors import forbidden_error, not_found_error

INITIAL = ("default", "kube-system", "kubeflow-system")
"""Namespaces of a new cluster."""
PERMANENT = ("default", "kube-system")
CONTENTS = tuple(kind for kind in STRATEGIES if kind.namespaced and view_of(kind) is None)


def check_namespace_active(store: Store, kind: Kind, obj: Obj) -> None:
    """Raises NotFound if the object's namespace does not exist, Forbidden if it is being deleted."""
    namespace = namespace_of(obj)
    record = store.get(kinds.NAMESPACE.resource, "", namespace)
    if record is None:
        raise not_found_error(kinds.NAMESPACE, namespace)
    if is_deleting(record.object):
        message = f"namespace {namespace} is being terminated"
        cause = {"reason": "NamespaceTerminating", "message": message, "field": "metadata.namespace"}
        why = f"unable to create new content in namespace {namespace} because it is being terminated"
        raise forbidden_error(kind, name_of(obj), why, [cause])


def removable_namespace(store: Store, namespace: str) -> Record | None:
    """The namespace if it is being deleted and empty."""
    record = store.get(kinds.NAMESPACE.resource, "", namespace)
    if record is None or not can_be_removed({**record.object, "spec": {}}):
        return None
    return None if any(store.list(kind.resource, namespace)[0] for kind in CONTENTS) else record
