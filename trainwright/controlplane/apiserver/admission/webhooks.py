"""Runs admission for the server: the rules of each kind, the webhooks of others, and what concerns new objects only.

Priority and account of a pod are those of the admission plugins Priority and ServiceAccount; that plugin also adds the volume with the
token, here the node does (plugin/pkg/admission/serviceaccount of Kubernetes). A JobSet of two billion replicas would fill the memory
with its Jobs, and is refused; a real cluster stores it, too, and is protected by quotas at best. What JobSet accepts behind an alpha
gate only is refused in the words of a cluster where the gates are off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType

from trainwright.api import kinds
from trainwright.api.admission.admit import AdmissionContext, admit
from trainwright.api.errors import Invalid, Problem
from trainwright.api.kinds import (
    CLUSTER_TRAINING_RUNTIME,
    COSCHEDULING_GROUP,
    JOB,
    JOBSET,
    LIMIT_RANGE,
    POD,
    RESOURCE_QUOTA,
    SERVICE_ACCOUNT,
    TRAINING_RUNTIME,
    TRAINJOB,
    Kind,
)
from trainwright.api.objects import Obj, account_of, controller_of, name_of, namespace_of
from trainwright.api.rules.defaults import SYSTEM_PRIORITIES
from trainwright.api.rules.problems import Lookup
from trainwright.api.schema.check import as_json
from trainwright.controlplane.apiserver.admission.rights import check_binding, check_host_paths, check_role
from trainwright.controlplane.apiserver.storage.store import Store
from trainwright.controlplane.apiserver.storage.views import view_of
from trainwright.controlplane.apiserver.wire.api_errors import forbidden_error, not_found_error
from trainwright.controlplane.apiserver.wire.requests import Requester, WriteOptions
from trainwright.controlplane.host_paths import HostPathPolicy

_RBAC = {kind.kind: kind for kind in kinds.RBAC_KINDS}
_KIND_NAMED = {kind.kind: kind for kind in kinds.ALL if view_of(kind) is None}
Validator = Callable[[Obj, Obj | None, Lookup], None]
"""A validating webhook of a kind: gets the admitted object, the one that it replaces, and a way to look others up. Raises ApiError."""
_NOT_ENFORCED = (RESOURCE_QUOTA.kind, LIMIT_RANGE.kind, COSCHEDULING_GROUP.kind)
_PRIORITY_COMPUTED = "priority admission controller computed"
MOST_PODS = 10_000
_RUNTIMES = (TRAINING_RUNTIME, CLUSTER_TRAINING_RUNTIME)
_COUNTED_KINDS = {kind.kind: kind for kind in (JOB, JOBSET, TRAINJOB, *_RUNTIMES)}
_GATED_STRATEGY = "InPlaceRestart"
_JOBSET_DENIED = 'admission webhook "vjobset.kb.io" denied the request: '


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
        if self._host_paths is not None:
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


def set_priority(pod: Obj, classes: Iterable[Obj]) -> Obj:
    """The pod with priority class, priority and preemption policy. System classes need no PriorityClass. Raises Forbidden."""
    spec = pod.get("spec")
    if not isinstance(spec, dict):
        return pod
    name = spec.get("priorityClassName") or ""
    if not isinstance(name, str):
        return pod
    named = {name_of(found): found for found in classes}
    chosen = named.get(name) if name else _default(named.values())
    if name and chosen is None and name not in SYSTEM_PRIORITIES:
        raise forbidden_error(POD, name_of(pod), f"no PriorityClass with name {name} was found")
    value = int(chosen.get("value") or 0) if chosen else SYSTEM_PRIORITIES.get(name, 0)
    policy = (chosen or {}).get("preemptionPolicy", "PreemptLowerPriority")
    if spec.get("priority") not in (None, value):
        given = f"the integer value of priority ({spec['priority']}) must not be provided in pod spec"
        raise forbidden_error(POD, name_of(pod), f"{given}; {_PRIORITY_COMPUTED} {value} from the given PriorityClass name")
    if spec.get("preemptionPolicy") not in (None, policy):
        given = f"the string value of PreemptionPolicy ({spec['preemptionPolicy']}) must not be provided in pod spec"
        raise forbidden_error(POD, name_of(pod), f"{given}; {_PRIORITY_COMPUTED} {policy} from the given PriorityClass name")
    found = {"priority": value, "preemptionPolicy": policy}
    if chosen:
        found["priorityClassName"] = name_of(chosen)
    return {**pod, "spec": {**spec, **found}}


def _default(classes: Iterable[Obj]) -> Obj | None:
    """The global default; of several the one with the lowest value."""
    return min((found for found in classes if found.get("globalDefault")), key=lambda found: int(found["value"]), default=None)


def check_service_account(pod: Obj, lookup: Lookup) -> None:
    """Raises Forbidden if the service account of a new pod does not exist."""
    if not isinstance(pod.get("spec"), dict):
        return  # rejected later
    namespace, account = namespace_of(pod), account_of(pod)
    if lookup(SERVICE_ACCOUNT.kind, namespace, account) is None:
        missing = not_found_error(SERVICE_ACCOUNT, account).message
        raise forbidden_error(POD, name_of(pod), f"error looking up service account {namespace}/{account}: {missing}")


def check_pod_count(new: Obj, old: Obj | None) -> None:
    """Raises Forbidden for an admitted object that asks for more than MOST_PODS, unless the stored one already does."""
    kind = _COUNTED_KINDS.get(str(new.get("kind")))
    if kind is None:
        return
    wanted = _pods(kind, new)
    if wanted > MOST_PODS and (old is None or wanted > _pods(kind, old)):
        raise forbidden_error(kind, name_of(new), f"it asks for {wanted} pods, and this cluster makes at most {MOST_PODS} for it")


def _pods(kind: Kind, obj: Obj) -> int:
    """The pods that run at once, and at least one for each Job."""
    spec = obj.get("spec") or {}
    if kind == JOBSET:
        return _of_jobset(spec)
    if kind in _RUNTIMES:
        nodes = _whole((spec.get("mlPolicy") or {}).get("numNodes"), 1)
        return max(nodes, _of_jobset((spec.get("template") or {}).get("spec") or {}))
    if kind == TRAINJOB:
        return _whole((spec.get("trainer") or {}).get("numNodes"), 1)
    return _of_job(spec)


def _of_jobset(spec: Obj) -> int:
    jobs = spec.get("replicatedJobs") or []
    return sum(_whole(job.get("replicas"), 1) * max(_of_job((job.get("template") or {}).get("spec") or {}), 1) for job in jobs)


def _of_job(spec: Obj) -> int:
    return _whole(spec.get("parallelism"), 1)


def _whole(value: int | None, default: int) -> int:
    return default if value is None else value


def refuse_gated_fields(new: Obj) -> None:
    """Validate an admitted new JobSet. Raises Invalid."""
    if found := list(_gated(new)):
        error = Invalid.of(JOBSET.kind, name_of(new), found, JOBSET.group)
        error.message = _JOBSET_DENIED + error.message
        raise error


def _gated(new: Obj) -> Iterator[Problem]:
    policy = new["spec"].get("failurePolicy") or {}
    for number, rule in enumerate(policy.get("rules") or []):
        if rule["action"] in ("RestartJob", "RestartJobAndIgnoreMaxRestarts"):
            where = f"spec.failurePolicy.rules[{number}].action"
            yield Problem(where, f"Invalid value: {as_json(rule['action'])}: feature gate RestartJob must be enabled")
            return
    if policy.get("restartStrategy") == _GATED_STRATEGY:
        where = "spec.failurePolicy.restartStrategy"
        yield Problem(where, f"Invalid value: {as_json(_GATED_STRATEGY)}: feature gate InPlaceRestart must be enabled")
