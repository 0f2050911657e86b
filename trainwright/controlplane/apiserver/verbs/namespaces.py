"""The life of a namespace: who may create in it, and when a doomed one is empty."""

from __future__ import annotations

from trainwright.api import kinds
from trainwright.api.kinds import Kind
from trainwright.api.objects import Obj, is_deleting, name_of, namespace_of
from trainwright.controlplane.apiserver.resources.registry import STRATEGIES
from trainwright.controlplane.apiserver.storage.records import Record
from trainwright.controlplane.apiserver.storage.store import Store
from trainwright.controlplane.apiserver.storage.views import view_of
from trainwright.controlplane.apiserver.verbs.deletion import is_over
from trainwright.controlplane.apiserver.wire.api_errors import forbidden, not_found

FIRST = ("default", "kube-system", "kubeflow-system")
"""What a new cluster starts with."""
PERMANENT = ("default", "kube-system")
CONTENTS = tuple(kind for kind in STRATEGIES if kind.namespaced and view_of(kind) is None)


def check_open(store: Store, kind: Kind, obj: Obj) -> None:
    """Raises NotFound for an object in a namespace that does not exist, Forbidden for one that is being deleted."""
    namespace = namespace_of(obj)
    record = store.get(kinds.NAMESPACE.resource, "", namespace)
    if record is None:
        raise not_found(kinds.NAMESPACE, namespace)
    if is_deleting(record.object):
        message = f"namespace {namespace} is being terminated"
        cause = {"reason": "NamespaceTerminating", "message": message, "field": "metadata.namespace"}
        why = f"unable to create new content in namespace {namespace} because it is being terminated"
        raise forbidden(kind, name_of(obj), why, [cause])


def finished(store: Store, namespace: str) -> Record | None:
    """The namespace, if it is being deleted and holds nothing any more."""
    record = store.get(kinds.NAMESPACE.resource, "", namespace)
    if record is None or not is_over({**record.object, "spec": {}}):
        return None
    return None if any(store.list(kind.resource, namespace)[0] for kind in CONTENTS) else record
