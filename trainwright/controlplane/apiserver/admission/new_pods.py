"""Admission of new pods: their priority, and their service account, like the admission plugins Priority and ServiceAccount.

The priority comes from the PriorityClass or the default one. A service account must exist. Its plugin also adds the volume with the
token; here the node does. Source: plugin/pkg/admission/serviceaccount of Kubernetes.
"""

from __future__ import annotations

from collections.abc import Iterable

from trainwright.api.defaults.pod import SYSTEM_PRIORITIES
from trainwright.api.kinds import POD, SERVICE_ACCOUNT
from trainwright.api.objects import Obj, account_of, name_of, namespace_of
from trainwright.api.rules.webhook import Lookup
from trainwright.controlplane.apiserver.wire.api_errors import forbidden_error, not_found_error

_PLUGIN = "priority admission controller computed"


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
        raise forbidden_error(POD, name_of(pod), f"{given}; {_PLUGIN} {value} from the given PriorityClass name")
    if spec.get("preemptionPolicy") not in (None, policy):
        given = f"the string value of PreemptionPolicy ({spec['preemptionPolicy']}) must not be provided in pod spec"
        raise forbidden_error(POD, name_of(pod), f"{given}; {_PLUGIN} {policy} from the given PriorityClass name")
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
