"""Admission as the server asks it: the rules of every kind, those that gates add, those of a TrainJob's runtime."""

from __future__ import annotations

from trainwright.api import kinds
from trainwright.api.admission.admit import AdmissionContext, admit
from trainwright.api.objects import Obj
from trainwright.controlplane.apiserver.admission.jobset_gates import check_gates, resizable
from trainwright.controlplane.apiserver.admission.pod_priority import with_priority
from trainwright.controlplane.apiserver.admission.trainjob_policies import check_trainjob_policies
from trainwright.controlplane.apiserver.storage.store import Store
from trainwright.controlplane.apiserver.storage.views import view_of
from trainwright.controlplane.apiserver.wire.write_options import WriteOptions
from trainwright.controlplane.gates import FeatureGates

_KIND_NAMED = {kind.kind: kind for kind in kinds.ALL if view_of(kind) is None}


class Webhooks:
    """What stands between a request and the store. Under the store's lock."""

    def __init__(self, store: Store, gates: FeatureGates):
        self._store, self._gates = store, gates

    def admitted(self, new: Obj, old: Obj | None, options: WriteOptions, now: str) -> tuple[Obj, list[str]]:
        """The object as it will be stored, and what its author is told. Raises BadRequest, Denied, Invalid."""
        context = AdmissionContext(
            now, self.lookup, options.strictness, duplicates=options.duplicates, only_status=options.status, is_json=True
        )
        gated = new.get("kind") == kinds.JOBSET.kind and not options.status
        if old is None and new.get("kind") == kinds.POD.kind:
            new = with_priority(new, [record.object for record in self._store.list(kinds.PRIORITY_CLASS.resource)[0]])
        admitted = admit(new, resizable(old, new, self._gates) if gated and old else old, context=context)
        if gated:
            check_gates(old, admitted.object, self._gates)
        if new.get("kind") == kinds.TRAINJOB.kind and not options.status:
            check_trainjob_policies(admitted.object, self.lookup)
        return admitted.object, admitted.warnings

    def lookup(self, kind_name: str, namespace: str, name: str) -> Obj | None:
        """Another object that a rule asks for."""
        kind = _KIND_NAMED.get(kind_name)
        if kind is None:
            return None
        record = self._store.get(kind.resource, namespace if kind.namespaced else "", name)
        return record.object if record else None
