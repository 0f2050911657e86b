"""Runs admission for the server: the rules of each kind, pod priority and runtime policies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from trainwright.api import kinds
from trainwright.api.admission.admit import AdmissionContext, Lookup, admit
from trainwright.api.kinds import COSCHEDULING_GROUP, LIMIT_RANGE, RESOURCE_QUOTA, Kind
from trainwright.api.objects import Obj, controller_of, name_of
from trainwright.controlplane.apiserver.admission.escalation import check_binding, check_role
from trainwright.controlplane.apiserver.admission.host_paths import check_host_paths
from trainwright.controlplane.apiserver.admission.new_objects import (
    check_pod_count,
    check_service_account,
    refuse_gated_fields,
    set_priority,
)
from trainwright.controlplane.apiserver.storage.store import Store
from trainwright.controlplane.apiserver.storage.views import view_of
from trainwright.controlplane.apiserver.wire.write_options import Requester, WriteOptions
from trainwright.controlplane.host_paths import HostPathPolicy

_RBAC = {kind.kind: kind for kind in kinds.RBAC_KINDS}
_KIND_NAMED = {kind.kind: kind for kind in kinds.ALL if view_of(kind) is None}
Validator = Callable[[Obj, Obj | None, Lookup], None]
"""A validating webhook of a kind: gets the admitted object, the one that it replaces, and a way to look others up. Raises ApiError."""
_NOT_ENFORCED = (RESOURCE_QUOTA.kind, LIMIT_RANGE.kind, COSCHEDULING_GROUP.kind)


class Webhooks:
    """Admits objects before they are stored. Called under the store's lock."""

    def __init__(
        self,
        store: Store,
        host_paths: HostPathPolicy | None = None,
        *,
        service_accounts: bool = True,
        validators: Mapping[str, Validator] = MappingProxyType({}),
    ):
        self._store, self._host_paths, self._service_accounts = store, host_paths, service_accounts
        self._validators = validators

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
        if old is None and new.get("kind") == kinds.POD.kind:
            if self._service_accounts:
                check_service_account(new, self.lookup)
            new = set_priority(new, [record.object for record in self._store.list(kinds.PRIORITY_CLASS.resource)[0]])
        admitted = admit(new, old, context=context)
        if old is None and new.get("kind") == kinds.JOBSET.kind:
            refuse_gated_fields(admitted.object)
        if not options.status and (validate := self._validators.get(admitted.object["kind"])) is not None:
            validate(admitted.object, old, self.lookup)
        if options.sender is not None and new.get("kind") in _RBAC:
            self._check_rights(_RBAC[new["kind"]], admitted.object, old, options.sender)
        if options.sender is not None and not options.status:  # controllers carry out what was admitted
            check_pod_count(admitted.object, old)
        if self._host_paths is not None and not options.status:
            admitted.warnings.extend(check_host_paths(admitted.object, old, options.sender, self._host_paths))
        return admitted.object, [*admitted.warnings, *not_enforced_warnings(admitted.object, old)]

    def _check_rights(self, kind: Kind, new: Obj, old: Obj | None, sender: Requester) -> None:
        """Raise Forbidden for a role or binding that gives away more than the sender has."""
        if kind in (kinds.ROLE, kinds.CLUSTER_ROLE):
            check_role(kind, new, old, sender)
        else:
            check_binding(kind, new, old, sender, self.lookup)

    def lookup(self, kind_name: str, namespace: str, name: str) -> Obj | None:
        """Look up another object for a rule; None if it does not exist."""
        kind = _KIND_NAMED.get(kind_name)
        if kind is None:
            return None
        record = self._store.get(kind.resource, namespace if kind.namespaced else "", name)
        return record.object if record else None


def not_enforced_warnings(new: Obj, old: Obj | None) -> list[str]:
    """Return the warning for a new object of such a kind. Not for a TrainJob's PodGroup: its pods are placed together anyway."""
    if old is not None or new.get("kind") not in _NOT_ENFORCED or controller_of(new) is not None:
        return []
    return [f"{new['kind']} {name_of(new)}: this cluster stores it, and does not enforce it"]
