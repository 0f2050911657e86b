"""Runs admission for the server: the rules of each kind, feature gates, pod priority and runtime policies."""

from __future__ import annotations

from trainwright.api import kinds
from trainwright.api.admission.admit import AdmissionContext, admit
from trainwright.api.objects import Obj
from trainwright.controlplane.apiserver.admission.jobset_gates import check_gates, with_mutable_sizes
from trainwright.controlplane.apiserver.admission.pod_priority import set_priority
from trainwright.controlplane.apiserver.admission.trainjob_policies import check_trainjob_policies
from trainwright.controlplane.apiserver.storage.store import Store
from trainwright.controlplane.apiserver.storage.views import view_of
from trainwright.controlplane.apiserver.wire.write_options import WriteOptions
from trainwright.controlplane.gates import FeatureGates

_KIND_NAMED = {kind.kind: kind for kind in kinds.ALL if view_of(kind) is None}


class Webhooks:
    """Admits objects before they are stored. Called under the store's lock."""

    def __init__(self, store: Store, gates: FeatureGates):
        self._store, self._gates = store, gates

    def admit(self, new: Obj, old: Obj | None, options: WriteOptions, now: str) -> tuple[Obj, list[str]]:
        """Admit an object; returns the object to store and warnings. Raises BadRequest, Denied, Invalid."""
        context = AdmissionContext(
            now,
            self.lookup,
            options.field_validation,
            duplicates=options.duplicate_fields,
            only_status=options.status,
            is_json=True,
        )
        gated = new.get("kind") == kinds.JOBSET.kind and not options.status
        if old is None and new.get("kind") == kinds.POD.kind:
            new = set_priority(new, [record.object for record in self._store.list(kinds.PRIORITY_CLASS.resource)[0]])
        admitted = admit(new, with_mutable_sizes(old, new, self._gates) if gated and old else old, context=context)
        if gated:
            check_gates(old, admitted.object, self._gates)
        if new.get("kind") == kinds.TRAINJOB.kind and not options.status:
            check_trainjob_policies(admitted.object, self.lookup)
        return admitted.object, admitted.warnings

    def lookup(self, kind_name: str, namespace: str, name: str) -> Obj | None:
        """Look up another object for a rule; None if it does not exist."""
        kind = _KIND_NAMED.get(kind_name)
        if kind is None:
            return None
        record = self._store.get(kind.resource, namespace if kind.namespaced else "", name)
        return record.object if record else None
