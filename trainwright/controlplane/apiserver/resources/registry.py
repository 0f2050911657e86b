"""The served kinds, their strategies, and the URL paths at which they are.

The verbs in `verbs` are generic. A `Strategy`, as in kube-apiserver's registry, holds what is specific to one kind; such as the QoS
class of a pod (source: `ComputePodQOS` of Kubernetes). Strategies see objects that are not validated yet: what is not an amount does
not count.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from trainwright.api import kinds, names
from trainwright.api.errors import NotFound
from trainwright.api.event_forms import FIELD_LABELS
from trainwright.api.kinds import NAMESPACE, Kind
from trainwright.api.objects import Obj
from trainwright.api.quantities import Quantity, parse_quantity

Prepare = Callable[[Obj], None]
"""Changes a new object in place before it is created."""
_METADATA_FIELDS = frozenset({"metadata.name", "metadata.namespace"})
_POD_FIELDS = frozenset(
    {
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.podIPs",
        "status.nominatedNodeName",
    }
)
_INVOLVED_OBJECT_FIELDS = frozenset(
    f"involvedObject.{part}" for part in ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
)
_EVENT_FIELDS = _INVOLVED_OBJECT_FIELDS | {"reason", "reportingComponent", "source", "type"}
GROUP_VERSIONS = tuple(dict.fromkeys((kind.group, kind.version) for kind in kinds.ALL))
_COMPUTE = ("cpu", "memory")
"""Other resources do not count."""
_Amounts = dict[str, Quantity]
CONNECT_SUBRESOURCES = ("attach", "exec", "portforward")
"""Pod subresources that upgrade the connection."""
_NAMESPACE_SUBRESOURCES = ("status", "finalize")


@dataclass(frozen=True)
class Strategy:
    """The rules that the verbs apply to one kind."""

    kind: Kind
    custom: bool = False
    """Defined by a CRD on a real cluster: no unconditional updates, no strategic merge patch."""
    generation: bool = False
    """metadata.generation counts changes outside metadata and status."""
    requires_resource_version: bool = False
    """A PUT requires metadata.resourceVersion."""
    allows_create_on_update: bool = False
    keeps_status_on_create: bool = False
    returns_deleted_object: bool = False
    """DELETE returns the object instead of a Status."""
    orphans_by_default: bool = False
    """The default propagation policy of DELETE is Orphan."""
    read_only: bool = False
    selectable_fields: frozenset[str] = field(default=_METADATA_FIELDS)
    """Fields that a field selector supports."""
    derived_fields: Mapping[str, Callable[[Obj], str]] = field(default_factory=dict)
    """How to read those that are not in the object as text. Source: the functions `ToSelectableFields` of kube-apiserver."""
    status_metadata: tuple[str, ...] = ("labels", "annotations")
    """What of the metadata a write to the status covers. Source: `PrepareForUpdate` of the status strategies of kube-apiserver."""
    prepare_for_create: Prepare = lambda obj: None
    prepare_for_update: Callable[[Obj, Obj], None] = lambda new, old: None


def _truth(value: object) -> str:
    return "true" if value else "false"


def _event_source(event: Obj) -> str:
    return str((event.get("source") or {}).get("component") or event.get("reportingComponent") or "")


def _prepare_pod(pod: Obj) -> None:
    """Set the status of a new, unscheduled pod: phase Pending and its QoS class."""
    spec = _as_dict(pod.get("spec"))
    pod["status"] = {"phase": "Pending", "qosClass": qos_class(spec)}
    if spec.get("schedulingGates"):
        gated = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "lastProbeTime": None}
        pod["status"]["conditions"] = [{**gated, "message": "Scheduling is blocked due to non-empty scheduling gates"}]


def _as_dict(value: Any) -> Obj:
    """The value if it is a dict, otherwise an empty one: validation rejects other types later."""
    return value if isinstance(value, dict) else {}


def _prepare_claim(claim: Obj) -> None:
    claim["status"] = {"phase": "Pending"}
    if isinstance(claim.get("spec"), dict):
        claim["spec"].setdefault("volumeMode", "Filesystem")
    metadata = claim["metadata"]
    finalizers = metadata.get("finalizers") or []
    if names.CLAIM_PROTECTION not in finalizers:
        metadata["finalizers"] = [*finalizers, names.CLAIM_PROTECTION]


def _prepare_namespace(namespace: Obj) -> None:
    namespace["spec"] = {"finalizers": ["kubernetes"]}
    namespace["status"] = {"phase": "Active"}
    _set_name_label(namespace)


def _set_name_label(namespace: Obj) -> None:
    metadata = namespace["metadata"]
    if metadata.get("name"):
        metadata["labels"] = {**(metadata.get("labels") or {}), "kubernetes.io/metadata.name": metadata["name"]}


def _prepare_service_update(new: Obj, old: Obj) -> None:
    spec = new.get("spec") or {}
    if not isinstance(spec, dict):
        return
    new["spec"] = dict(spec)
    before = old.get("spec") or {}
    if new["spec"].get("type", "ClusterIP") != "ExternalName":
        for name in ("clusterIP", "clusterIPs"):
            if before.get(name) and not new["spec"].get(name):
                new["spec"][name] = before[name]
    _default_service_spec(new["spec"])


def _default_service_spec(spec: Obj) -> None:
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    ports = spec.get("ports")
    if isinstance(ports, list):
        spec["ports"] = [
            {"protocol": "TCP", "targetPort": port.get("port"), **port} if isinstance(port, dict) else port for port in ports
        ]
    if spec["type"] != "ExternalName":
        spec.setdefault("internalTrafficPolicy", "Cluster")
        spec.setdefault("ipFamilies", ["IPv4"])
        spec.setdefault("ipFamilyPolicy", "SingleStack")
    if spec.get("clusterIP"):
        spec.setdefault("clusterIPs", [spec["clusterIP"]])


def _prepare_namespace_update(new: Obj, old: Obj) -> None:
    new["spec"] = old.get("spec") or {}
    _set_name_label(new)


def _clear_status(obj: Obj) -> None:
    obj["status"] = {}


def _prepare_secret(secret: Obj) -> None:
    texts, data = secret.get("stringData"), secret.get("data") or {}
    if isinstance(texts, dict) and isinstance(data, dict):  # validation rejects other types later
        del secret["stringData"]
        encoded = {key: base64.b64encode(str(text).encode()).decode() for key, text in texts.items()}
        secret["data"] = {**data, **encoded}
    secret.setdefault("type", "Opaque")


def _custom_resource(kind: Kind) -> Strategy:
    return Strategy(kind, custom=True, generation=True, requires_resource_version=True, status_metadata=())


def _prepare_service(service: Obj) -> None:
    service["status"] = {"loadBalancer": {}}
    spec = service.get("spec") or {}
    if isinstance(spec, dict):  # validation rejects other types later
        service["spec"] = dict(spec)
        _default_service_spec(service["spec"])


STRATEGIES = {
    strategy.kind: strategy
    for strategy in (
        _custom_resource(kinds.TRAINJOB),
        _custom_resource(kinds.TRAINING_RUNTIME),
        _custom_resource(kinds.CLUSTER_TRAINING_RUNTIME),
        _custom_resource(kinds.JOBSET),
        Strategy(
            kinds.JOB,
            generation=True,
            orphans_by_default=True,
            selectable_fields=_METADATA_FIELDS | {"status.successful"},
            derived_fields={"status.successful": lambda job: str((job.get("status") or {}).get("succeeded") or 0)},
            prepare_for_create=_clear_status,
        ),
        Strategy(
            kinds.POD,
            generation=True,
            returns_deleted_object=True,
            selectable_fields=_METADATA_FIELDS | _POD_FIELDS,
            derived_fields={"spec.hostNetwork": lambda pod: _truth(pod["spec"].get("hostNetwork"))},
            prepare_for_create=_prepare_pod,
        ),
        Strategy(
            kinds.SERVICE,
            allows_create_on_update=True,
            returns_deleted_object=True,
            selectable_fields=_METADATA_FIELDS | {"spec.clusterIP", "spec.type"},
            prepare_for_create=_prepare_service,
            prepare_for_update=_prepare_service_update,
        ),
        Strategy(kinds.CONFIG_MAP),
        Strategy(
            kinds.SECRET,
            selectable_fields=_METADATA_FIELDS | {"type"},
            prepare_for_create=_prepare_secret,
            prepare_for_update=lambda new, old: _prepare_secret(new),
        ),
        Strategy(
            kinds.EVENT,
            allows_create_on_update=True,
            selectable_fields=_METADATA_FIELDS | _EVENT_FIELDS,
            derived_fields={"source": _event_source},
        ),
        Strategy(kinds.NEW_EVENT, allows_create_on_update=True, selectable_fields=FIELD_LABELS),
        Strategy(
            kinds.NAMESPACE,
            returns_deleted_object=True,
            selectable_fields=frozenset({"metadata.name", "status.phase"}),
            prepare_for_create=_prepare_namespace,
            prepare_for_update=_prepare_namespace_update,
        ),
        Strategy(
            kinds.NODE,
            keeps_status_on_create=True,
            selectable_fields=frozenset({"metadata.name", "spec.unschedulable"}),
            derived_fields={"spec.unschedulable": lambda node: _truth((node.get("spec") or {}).get("unschedulable"))},
        ),
        Strategy(kinds.CLAIM, returns_deleted_object=True, prepare_for_create=_prepare_claim),
        Strategy(kinds.SERVICE_ACCOUNT, returns_deleted_object=True),
        Strategy(kinds.LEASE, requires_resource_version=True, allows_create_on_update=True),
        _custom_resource(kinds.COSCHEDULING_GROUP),
        _custom_resource(kinds.VOLCANO_GROUP),
        Strategy(kinds.POD_TEMPLATE, generation=True),
        Strategy(kinds.LIMIT_RANGE),
        Strategy(kinds.RESOURCE_QUOTA),
        Strategy(kinds.ENDPOINT_SLICE, generation=True),
        Strategy(kinds.PRIORITY_CLASS, generation=True),
        Strategy(kinds.RUNTIME_CLASS),
        *(Strategy(kind, allows_create_on_update=True) for kind in kinds.RBAC_KINDS),
        Strategy(kinds.DEPLOYMENT, generation=True, status_metadata=("annotations",), prepare_for_create=_clear_status),
        Strategy(kinds.NETWORK_POLICY, generation=True),
        Strategy(kinds.DISRUPTION_BUDGET, generation=True, prepare_for_create=_clear_status),
        Strategy(kinds.DEFINITION, read_only=True, generation=True, keeps_status_on_create=True),
    )
}
STRATEGIES_BY_PATH = {(kind.group, kind.version, kind.plural): strategy for kind, strategy in STRATEGIES.items()}
"""Strategies by group, version and plural, the parts of a URL path."""
CUSTOM_GROUPS = frozenset(kind.group for kind, strategy in STRATEGIES.items() if strategy.custom)


def strategy_of(kind: Kind) -> Strategy:
    """The strategy of a kind. Raises NotFound if the kind is not served."""
    strategy = STRATEGIES.get(kind)
    if strategy is None:
        raise NotFound("the server could not find the requested resource")
    return strategy


def qos_class(spec: Obj) -> str:
    """Return Guaranteed, Burstable or BestEffort. Resources of the pod as a whole count instead of those of its containers."""
    containers = [_as_dict(entry) for group in ("containers", "initContainers") for entry in _list(spec.get(group))]
    own, whole = [_as_dict(container.get("resources")) for container in containers], _as_dict(spec.get("resources"))
    limits = [_positive(_as_dict(part.get("limits"))) for part in ([whole] if whole else own)]
    if whole:
        asked = {name for part in own for name in _positive(_requests(part))}
        requests = [_positive(_requests(whole, without=asked))]
    else:
        requests = [_positive(_requests(part)) for part in own]
    most, least = _sum(limits), _sum(requests)
    if not most and not least:
        return "BestEffort"
    is_limited = all(len(part) == len(_COMPUTE) for part in limits)
    return "Guaranteed" if is_limited and most == least else "Burstable"


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _positive(amounts: Obj) -> _Amounts:
    found: _Amounts = {}
    for name, text in amounts.items():
        if name not in _COMPUTE:
            continue
        try:
            amount = parse_quantity(text)
        except (ValueError, ArithmeticError, TypeError):  # not validated yet: what is not an amount does not count
            continue
        if amount.value > 0:
            found[name] = amount
    return found


def _requests(resources: Obj, without: Iterable[str] = ()) -> Obj:
    """The requests; by default, what is limited is requested up to the limit."""
    defaults = {name: amount for name, amount in _as_dict(resources.get("limits")).items() if name not in without}
    return {**defaults, **_as_dict(resources.get("requests"))}


def _sum(parts: Iterable[_Amounts]) -> _Amounts:
    total: _Amounts = {}
    for part in parts:
        for name, amount in part.items():
            total[name] = total[name] + amount if name in total else amount
    return total


class NoSuchPath(Exception):
    """No resource is served at this path. With `text` the response body is plain text, as outside the built-in groups."""

    def __init__(self, *, text: bool):
        super().__init__("not found")
        self.text = text


@dataclass(frozen=True)
class Target:
    """A collection, an object (`name`) or a `subresource` of one. `namespace` is None for all namespaces."""

    strategy: Strategy
    namespace: str | None
    name: str = ""
    subresource: str = ""

    @property
    def kind(self) -> Kind:
        return self.strategy.kind

    @property
    def namespace_key(self) -> str:
        """The namespace in storage keys; empty for cluster-scoped objects."""
        return self.namespace or ""


def parse_target(parts: list[str]) -> Target:
    """Resolve the segments of a path below `/api/VERSION` or `/apis/GROUP/VERSION`. Raises NoSuchPath."""
    group, version, *rest = parts[1:] if parts[0] == "apis" else ["", *parts[1:]]
    missing = NoSuchPath(text=group in CUSTOM_GROUPS or not any(group == served for served, _ in GROUP_VERSIONS))
    namespace = None
    if rest[0] == NAMESPACE.plural and len(rest) > 2 and not (len(rest) == 3 and rest[2] in _NAMESPACE_SUBRESOURCES):
        namespace, rest = rest[1], rest[2:]
        if not namespace:
            raise missing
    strategy = STRATEGIES_BY_PATH.get((group, version, rest[0]))
    if strategy is None or len(rest) > 3 or "" in rest:
        raise missing
    name, subresource = (*rest[1:], "", "")[:2]
    if strategy.kind.namespaced != (namespace is not None) and (name or namespace):
        raise missing
    if subresource and not strategy.custom and subresource not in _subresources(strategy.kind):
        raise missing
    return Target(strategy, namespace, name, subresource)


def _subresources(kind: Kind) -> set[str]:
    pods = {"log", "binding", "eviction", *CONNECT_SUBRESOURCES}
    own = {"pods": pods, "namespaces": {"finalize"}, "serviceaccounts": {"token"}}
    return ({"status"} if kind.status else set()) | own.get(kind.plural, set())
