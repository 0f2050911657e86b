"""What the server serves, and in which points one kind differs from another.

The verbs in `rest` are the same for all; a `Strategy` says what happens to an object of its kind before it is written.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from trainwright.api import kinds, names
from trainwright.api.errors import NotFound
from trainwright.api.event_forms import FIELD_LABELS
from trainwright.api.kinds import Kind
from trainwright.api.objects import Obj

Prepare = Callable[[Obj], None]
"""Changes, in place, an object that is about to be created."""

_EVERYWHERE = frozenset({"metadata.name", "metadata.namespace"})


@dataclass(frozen=True)
class Strategy:
    """One kind, as the verbs treat it."""

    kind: Kind
    custom: bool = False
    """Defined by a CRD on a real cluster: strict about versions, no strategic merge patch."""
    generation: bool = False
    """metadata.generation counts the changes outside of metadata and status."""
    needs_version: bool = False
    """A PUT must say which version it replaces."""
    created_by_put: bool = False
    keeps_status_on_create: bool = False
    answers_deleted_object: bool = False
    """DELETE answers with the object, not with a Status."""
    orphans_by_default: bool = False
    """A DELETE that does not say how leaves the dependents alone."""
    read_only: bool = False
    selectable: frozenset[str] = field(default=_EVERYWHERE)
    """Paths that a field selector may name."""
    prepare_for_create: Prepare = lambda obj: None
    prepare_for_update: Callable[[Obj, Obj], None] = lambda new, old: None


def _custom(kind: Kind) -> Strategy:
    return Strategy(kind, custom=True, generation=True, needs_version=True)


def _pending(pod: Obj) -> None:
    """A new pod waits for a node; only the class of its service is known before."""
    spec = _map(pod.get("spec"))
    pod["status"] = {"phase": "Pending", "qosClass": _qos_class(spec)}
    if spec.get("schedulingGates"):
        gated = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "lastProbeTime": None}
        pod["status"]["conditions"] = [{**gated, "message": "Scheduling is blocked due to non-empty scheduling gates"}]


def _qos_class(spec: Obj) -> str:
    containers = [*_list(spec.get("containers")), *_list(spec.get("initContainers"))]
    resources = [_map(_map(container).get("resources")) for container in containers]
    limits, requests = ([_map(entry.get(name)) for entry in resources] for name in ("limits", "requests"))
    if not any(limits) and not any(requests):
        return "BestEffort"
    guaranteed = all({"cpu", "memory"} <= entry.keys() for entry in limits) and all(
        most.get(name) == amount for most, least in zip(limits, requests, strict=True) for name, amount in least.items()
    )
    return "Guaranteed" if guaranteed else "Burstable"


def _map(value: Any) -> Obj:
    """What is there, if it is a map: an object of another form is refused when it is read, which comes later."""
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _active(namespace: Obj) -> None:
    namespace["spec"] = {"finalizers": ["kubernetes"]}
    namespace["status"] = {"phase": "Active"}
    _named_by_label(namespace)


def _keep_namespace(new: Obj, old: Obj) -> None:
    new["spec"] = old.get("spec") or {}
    _named_by_label(new)


def _named_by_label(namespace: Obj) -> None:
    metadata = namespace["metadata"]
    if metadata.get("name"):
        metadata["labels"] = {**(metadata.get("labels") or {}), "kubernetes.io/metadata.name": metadata["name"]}


def _unstarted(obj: Obj) -> None:
    obj["status"] = {}


def _secret(secret: Obj) -> None:
    texts, data = secret.get("stringData"), secret.get("data") or {}
    if isinstance(texts, dict) and isinstance(data, dict):  # otherwise it is refused when it is read
        del secret["stringData"]
        encoded = {key: base64.b64encode(str(text).encode()).decode() for key, text in texts.items()}
        secret["data"] = {**data, **encoded}
    secret.setdefault("type", "Opaque")


def _service(service: Obj) -> None:
    service["status"] = {"loadBalancer": {}}
    spec = service.get("spec") or {}
    if isinstance(spec, dict):  # otherwise it is refused when it is read
        service["spec"] = dict(spec)
        _service_spec(service["spec"])


def _keep_service(new: Obj, old: Obj) -> None:
    spec = new.get("spec") or {}
    if not isinstance(spec, dict):
        return
    new["spec"] = dict(spec)
    before = old.get("spec") or {}
    if new["spec"].get("type", "ClusterIP") != "ExternalName":
        for name in ("clusterIP", "clusterIPs"):
            if before.get(name) and not new["spec"].get(name):
                new["spec"][name] = before[name]
    _service_spec(new["spec"])


def _service_spec(spec: Obj) -> None:
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    ports = spec.get("ports")
    if isinstance(ports, list):
        spec["ports"] = [_service_port(port) for port in ports]
    if spec["type"] != "ExternalName":
        spec.setdefault("internalTrafficPolicy", "Cluster")
        spec.setdefault("ipFamilies", ["IPv4"])
        spec.setdefault("ipFamilyPolicy", "SingleStack")
    if spec.get("clusterIP"):
        spec.setdefault("clusterIPs", [spec["clusterIP"]])


def _service_port(port: Any) -> Any:
    return {"protocol": "TCP", "targetPort": port.get("port"), **port} if isinstance(port, dict) else port


def _claim(claim: Obj) -> None:
    claim["status"] = {"phase": "Pending"}
    if isinstance(claim.get("spec"), dict):
        claim["spec"].setdefault("volumeMode", "Filesystem")
    metadata = claim["metadata"]
    finalizers = metadata.get("finalizers") or []
    if names.CLAIM_PROTECTION not in finalizers:
        metadata["finalizers"] = [*finalizers, names.CLAIM_PROTECTION]


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
_INVOLVED = frozenset(
    f"involvedObject.{part}" for part in ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
)
_EVENT_FIELDS = _INVOLVED | {"reason", "reportingComponent", "source", "type"}

STRATEGIES = {
    strategy.kind: strategy
    for strategy in (
        _custom(kinds.TRAINJOB),
        _custom(kinds.TRAINING_RUNTIME),
        _custom(kinds.CLUSTER_TRAINING_RUNTIME),
        _custom(kinds.JOBSET),
        Strategy(
            kinds.JOB,
            generation=True,
            orphans_by_default=True,
            selectable=_EVERYWHERE | {"status.successful"},
            prepare_for_create=_unstarted,
        ),
        Strategy(
            kinds.POD,
            generation=True,
            answers_deleted_object=True,
            selectable=_EVERYWHERE | _POD_FIELDS,
            prepare_for_create=_pending,
        ),
        Strategy(
            kinds.SERVICE,
            created_by_put=True,
            answers_deleted_object=True,
            selectable=_EVERYWHERE | {"spec.clusterIP", "spec.type"},
            prepare_for_create=_service,
            prepare_for_update=_keep_service,
        ),
        Strategy(kinds.CONFIG_MAP),
        Strategy(
            kinds.SECRET,
            selectable=_EVERYWHERE | {"type"},
            prepare_for_create=_secret,
            prepare_for_update=lambda new, old: _secret(new),
        ),
        Strategy(
            kinds.EVENT,
            created_by_put=True,
            selectable=_EVERYWHERE | _EVENT_FIELDS,
        ),
        Strategy(kinds.NEW_EVENT, created_by_put=True, selectable=FIELD_LABELS),
        Strategy(
            kinds.NAMESPACE,
            answers_deleted_object=True,
            selectable=frozenset({"metadata.name", "status.phase"}),
            prepare_for_create=_active,
            prepare_for_update=_keep_namespace,
        ),
        Strategy(
            kinds.NODE,
            keeps_status_on_create=True,
            selectable=frozenset({"metadata.name", "spec.unschedulable"}),
        ),
        Strategy(kinds.CLAIM, answers_deleted_object=True, prepare_for_create=_claim),
        Strategy(kinds.SERVICE_ACCOUNT, answers_deleted_object=True),
        Strategy(kinds.LEASE, needs_version=True, created_by_put=True),
        _custom(kinds.COSCHEDULING_GROUP),
        _custom(kinds.VOLCANO_GROUP),
        Strategy(kinds.POD_TEMPLATE, generation=True),
        Strategy(kinds.LIMIT_RANGE),
        Strategy(kinds.RESOURCE_QUOTA),
        Strategy(kinds.ENDPOINT_SLICE, generation=True),
        Strategy(kinds.PRIORITY_CLASS, generation=True),
        Strategy(kinds.RUNTIME_CLASS),
        Strategy(kinds.DEFINITION, read_only=True, generation=True, keeps_status_on_create=True),
    )
}

BY_PATH = {(kind.group, kind.version, kind.plural): strategy for kind, strategy in STRATEGIES.items()}
"""Strategies by group, version and plural, as they stand in URLs."""

GROUP_VERSIONS = tuple(dict.fromkeys((kind.group, kind.version) for kind in kinds.ALL))
CUSTOM_GROUPS = frozenset(kind.group for kind, strategy in STRATEGIES.items() if strategy.custom)


def strategy_of(kind: Kind) -> Strategy:
    """Raises NotFound for a kind that is not served."""
    strategy = STRATEGIES.get(kind)
    if strategy is None:
        raise NotFound("the server could not find the requested resource")
    return strategy
