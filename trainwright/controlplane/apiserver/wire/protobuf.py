"""Decodes protobuf bodies, which kubectl's generators and typed Go clients send, into JSON objects.

Only messages that such clients create are described, each field with number, name and type. An unknown field is an error, never
silently dropped. Responses are JSON, which those clients accept.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from trainwright.api.errors import BadRequest
from trainwright.api.objects import Obj

MAGIC = b"k8s\0"
_Field = tuple[str, str]
"""Name and type: `s` string, `y` bytes, `i` integer and `b` boolean (omitted if zero), `S`, `I` and `B` the same but never
omitted, `t` Time, `u` MicroTime, otherwise a message name; the prefix `[` marks a list, `{` a map with string keys."""
_NODE_INFO = (
    "machineID",
    "systemUUID",
    "bootID",
    "kernelVersion",
    "osImage",
    "containerRuntimeVersion",
    "kubeletVersion",
    "kubeProxyVersion",
    "operatingSystem",
    "architecture",
)
_MESSAGES: dict[str, dict[int, _Field]] = {
    "ObjectMeta": {
        1: ("name", "s"),
        2: ("generateName", "s"),
        3: ("namespace", "s"),
        4: ("selfLink", "s"),
        5: ("uid", "s"),
        6: ("resourceVersion", "s"),
        7: ("generation", "i"),
        8: ("creationTimestamp", "t"),
        9: ("deletionTimestamp", "t"),
        10: ("deletionGracePeriodSeconds", "I"),
        11: ("labels", "{s"),
        12: ("annotations", "{s"),
        13: ("ownerReferences", "[OwnerReference"),
        14: ("finalizers", "[s"),
    },
    "OwnerReference": {
        1: ("kind", "s"),
        3: ("name", "s"),
        4: ("uid", "s"),
        5: ("apiVersion", "s"),
        6: ("controller", "B"),
        7: ("blockOwnerDeletion", "B"),
    },
    "ConfigMap": {1: ("metadata", "ObjectMeta"), 2: ("data", "{s"), 3: ("binaryData", "{y"), 4: ("immutable", "B")},
    "Secret": {
        1: ("metadata", "ObjectMeta"),
        2: ("data", "{y"),
        3: ("type", "s"),
        4: ("stringData", "{s"),
        5: ("immutable", "B"),
    },
    "NameRef": {1: ("name", "s")},
    "ServiceAccount": {
        1: ("metadata", "ObjectMeta"),
        3: ("imagePullSecrets", "[NameRef"),
        4: ("automountServiceAccountToken", "B"),
    },
    "Namespace": {1: ("metadata", "ObjectMeta"), 2: ("spec", "NamespaceSpec"), 3: ("status", "NamespaceStatus")},
    "NamespaceSpec": {1: ("finalizers", "[s")},
    "NamespaceStatus": {1: ("phase", "s")},
    "Pod": {1: ("metadata", "ObjectMeta"), 2: ("spec", "PodSpec"), 3: ("status", "Nothing")},
    "Nothing": {},
    "PodTemplateSpec": {1: ("metadata", "ObjectMeta"), 2: ("spec", "PodSpec")},
    "PodSpec": {
        2: ("containers", "[Container"),
        3: ("restartPolicy", "s"),
        4: ("terminationGracePeriodSeconds", "I"),
        5: ("activeDeadlineSeconds", "I"),
        6: ("dnsPolicy", "s"),
        7: ("nodeSelector", "{s"),
        8: ("serviceAccountName", "s"),
        9: ("serviceAccount", "s"),
        10: ("nodeName", "s"),
        11: ("hostNetwork", "b"),
        12: ("hostPID", "b"),
        13: ("hostIPC", "b"),
        14: ("securityContext", "Nothing"),
        15: ("imagePullSecrets", "[NameRef"),
        16: ("hostname", "s"),
        17: ("subdomain", "s"),
        19: ("schedulerName", "s"),
        20: ("initContainers", "[Container"),
        21: ("automountServiceAccountToken", "B"),
        22: ("tolerations", "[Toleration"),
        24: ("priorityClassName", "s"),
        25: ("priority", "I"),
    },
    "Container": {
        1: ("name", "s"),
        2: ("image", "s"),
        3: ("command", "[s"),
        4: ("args", "[s"),
        5: ("workingDir", "s"),
        6: ("ports", "[ContainerPort"),
        7: ("env", "[EnvVar"),
        8: ("resources", "Resources"),
        9: ("volumeMounts", "[VolumeMount"),
        13: ("terminationMessagePath", "s"),
        14: ("imagePullPolicy", "s"),
        16: ("stdin", "b"),
        17: ("stdinOnce", "b"),
        18: ("tty", "b"),
        20: ("terminationMessagePolicy", "s"),
    },
    "ContainerPort": {
        1: ("name", "s"),
        2: ("hostPort", "i"),
        3: ("containerPort", "i"),
        4: ("protocol", "s"),
        5: ("hostIP", "s"),
    },
    "EnvVar": {1: ("name", "s"), 2: ("value", "s")},
    "Resources": {1: ("limits", "{Quantity"), 2: ("requests", "{Quantity")},
    "VolumeMount": {1: ("name", "s"), 2: ("readOnly", "b"), 3: ("mountPath", "s"), 4: ("subPath", "s")},
    "Job": {1: ("metadata", "ObjectMeta"), 2: ("spec", "JobSpec"), 3: ("status", "JobStatus")},
    "JobSpec": {
        1: ("parallelism", "I"),
        2: ("completions", "I"),
        3: ("activeDeadlineSeconds", "I"),
        4: ("selector", "LabelSelector"),
        5: ("manualSelector", "B"),
        6: ("template", "PodTemplateSpec"),
        7: ("backoffLimit", "I"),
        8: ("ttlSecondsAfterFinished", "I"),
        9: ("completionMode", "s"),
        10: ("suspend", "B"),
    },
    "JobStatus": {4: ("active", "i"), 5: ("succeeded", "i"), 6: ("failed", "i")},
    "LabelSelector": {1: ("matchLabels", "{s"), 2: ("matchExpressions", "[Requirement")},
    "Requirement": {1: ("key", "s"), 2: ("operator", "s"), 3: ("values", "[s")},
    "Service": {1: ("metadata", "ObjectMeta"), 2: ("spec", "ServiceSpec"), 3: ("status", "ServiceStatus")},
    "ServiceSpec": {
        1: ("ports", "[ServicePort"),
        2: ("selector", "{s"),
        3: ("clusterIP", "s"),
        4: ("type", "s"),
        7: ("sessionAffinity", "s"),
        8: ("loadBalancerIP", "s"),
        10: ("externalName", "s"),
        11: ("externalTrafficPolicy", "s"),
        12: ("healthCheckNodePort", "i"),
        13: ("publishNotReadyAddresses", "b"),
    },
    "ServiceStatus": {1: ("loadBalancer", "Nothing")},
    "ServicePort": {
        1: ("name", "s"),
        2: ("protocol", "s"),
        3: ("port", "i"),
        4: ("targetPort", "IntOrString"),
        5: ("nodePort", "i"),
    },
    "Lease": {1: ("metadata", "ObjectMeta"), 2: ("spec", "LeaseSpec")},
    "LeaseSpec": {
        1: ("holderIdentity", "s"),
        2: ("leaseDurationSeconds", "I"),
        3: ("acquireTime", "u"),
        4: ("renewTime", "u"),
        5: ("leaseTransitions", "I"),
    },
    "Event": {
        1: ("metadata", "ObjectMeta"),
        2: ("involvedObject", "Reference"),
        3: ("reason", "s"),
        4: ("message", "s"),
        5: ("source", "EventSource"),
        6: ("firstTimestamp", "t"),
        7: ("lastTimestamp", "t"),
        8: ("count", "i"),
        9: ("type", "s"),
        10: ("eventTime", "u"),
        11: ("series", "EventSeries"),
        12: ("action", "s"),
        13: ("related", "Reference"),
        14: ("reportingComponent", "s"),
        15: ("reportingInstance", "s"),
    },
    "NewEvent": {
        1: ("metadata", "ObjectMeta"),
        2: ("eventTime", "u"),
        3: ("series", "EventSeries"),
        4: ("reportingController", "s"),
        5: ("reportingInstance", "s"),
        6: ("action", "s"),
        7: ("reason", "s"),
        8: ("regarding", "Reference"),
        9: ("related", "Reference"),
        10: ("note", "s"),
        11: ("type", "s"),
        12: ("deprecatedSource", "EventSource"),
        13: ("deprecatedFirstTimestamp", "t"),
        14: ("deprecatedLastTimestamp", "t"),
        15: ("deprecatedCount", "i"),
    },
    "EventSeries": {1: ("count", "i"), 2: ("lastObservedTime", "u")},
    "Reference": {
        1: ("kind", "s"),
        2: ("namespace", "s"),
        3: ("name", "s"),
        4: ("uid", "s"),
        5: ("apiVersion", "s"),
        6: ("resourceVersion", "s"),
        7: ("fieldPath", "s"),
    },
    "EventSource": {1: ("component", "s"), 2: ("host", "s")},
    "PriorityClass": {
        1: ("metadata", "ObjectMeta"),
        2: ("value", "I"),
        3: ("globalDefault", "b"),
        4: ("description", "s"),
        5: ("preemptionPolicy", "s"),
    },
    "Eviction": {1: ("metadata", "ObjectMeta"), 2: ("deleteOptions", "DeleteOptions")},
    "DeleteOptions": {
        1: ("gracePeriodSeconds", "I"),
        2: ("preconditions", "Preconditions"),
        3: ("orphanDependents", "B"),
        4: ("propagationPolicy", "s"),
        5: ("dryRun", "[s"),
    },
    "Preconditions": {1: ("uid", "s"), 2: ("resourceVersion", "s")},
    "ResourceQuota": {1: ("metadata", "ObjectMeta"), 2: ("spec", "QuotaSpec"), 3: ("status", "QuotaStatus")},
    "QuotaSpec": {1: ("hard", "{Quantity"), 2: ("scopes", "[s"), 3: ("scopeSelector", "ScopeSelector")},
    "ScopeSelector": {1: ("matchExpressions", "[ScopeRequirement")},
    "ScopeRequirement": {1: ("scopeName", "s"), 2: ("operator", "s"), 3: ("values", "[s")},
    "QuotaStatus": {1: ("hard", "{Quantity"), 2: ("used", "{Quantity")},
    "LimitRange": {1: ("metadata", "ObjectMeta"), 2: ("spec", "LimitRangeSpec")},
    "LimitRangeSpec": {1: ("limits", "[LimitRangeItem")},
    "LimitRangeItem": {
        1: ("type", "s"),
        2: ("max", "{Quantity"),
        3: ("min", "{Quantity"),
        4: ("default", "{Quantity"),
        5: ("defaultRequest", "{Quantity"),
        6: ("maxLimitRequestRatio", "{Quantity"),
    },
    "PersistentVolumeClaim": {1: ("metadata", "ObjectMeta"), 2: ("spec", "ClaimSpec"), 3: ("status", "ClaimStatus")},
    "ClaimSpec": {
        1: ("accessModes", "[s"),
        2: ("resources", "Resources"),
        3: ("volumeName", "s"),
        4: ("selector", "LabelSelector"),
        5: ("storageClassName", "S"),
        6: ("volumeMode", "s"),
        7: ("dataSource", "TypedReference"),
        8: ("dataSourceRef", "TypedReference"),
        9: ("volumeAttributesClassName", "S"),
    },
    "TypedReference": {1: ("apiGroup", "S"), 2: ("kind", "s"), 3: ("name", "s"), 4: ("namespace", "S")},
    "ClaimStatus": {1: ("phase", "s"), 2: ("accessModes", "[s"), 3: ("capacity", "{Quantity")},
    "Node": {1: ("metadata", "ObjectMeta"), 2: ("spec", "NodeSpec"), 3: ("status", "NodeStatus")},
    "NodeSpec": {
        1: ("podCIDR", "s"),
        3: ("providerID", "s"),
        4: ("unschedulable", "b"),
        5: ("taints", "[Taint"),
        7: ("podCIDRs", "[s"),
    },
    "Taint": {1: ("key", "s"), 2: ("value", "s"), 3: ("effect", "s"), 4: ("timeAdded", "t")},
    "NodeStatus": {
        1: ("capacity", "{Quantity"),
        2: ("allocatable", "{Quantity"),
        3: ("phase", "s"),
        4: ("conditions", "[NodeCondition"),
        5: ("addresses", "[NodeAddress"),
        6: ("daemonEndpoints", "DaemonEndpoints"),
        7: ("nodeInfo", "NodeInfo"),
    },
    "NodeCondition": {
        1: ("type", "s"),
        2: ("status", "s"),
        3: ("lastHeartbeatTime", "t"),
        4: ("lastTransitionTime", "t"),
        5: ("reason", "s"),
        6: ("message", "s"),
    },
    "NodeAddress": {1: ("type", "s"), 2: ("address", "s")},
    "DaemonEndpoints": {1: ("kubeletEndpoint", "DaemonEndpoint")},
    "DaemonEndpoint": {1: ("Port", "i")},
    "NodeInfo": dict(enumerate(((name, "s") for name in _NODE_INFO), start=1)),
    "PodTemplate": {1: ("metadata", "ObjectMeta"), 2: ("template", "PodTemplateSpec")},
    "Role": {1: ("metadata", "ObjectMeta"), 2: ("rules", "[PolicyRule")},
    "ClusterRole": {1: ("metadata", "ObjectMeta"), 2: ("rules", "[PolicyRule"), 3: ("aggregationRule", "AggregationRule")},
    "PolicyRule": {
        1: ("verbs", "[s"),
        2: ("apiGroups", "[s"),
        3: ("resources", "[s"),
        4: ("resourceNames", "[s"),
        5: ("nonResourceURLs", "[s"),
    },
    "AggregationRule": {1: ("clusterRoleSelectors", "[LabelSelector")},
    "RoleBinding": {1: ("metadata", "ObjectMeta"), 2: ("subjects", "[Subject"), 3: ("roleRef", "RoleRef")},
    "ClusterRoleBinding": {1: ("metadata", "ObjectMeta"), 2: ("subjects", "[Subject"), 3: ("roleRef", "RoleRef")},
    "Subject": {1: ("kind", "s"), 2: ("apiGroup", "s"), 3: ("name", "s"), 4: ("namespace", "s")},
    "RoleRef": {1: ("apiGroup", "s"), 2: ("kind", "s"), 3: ("name", "s")},
    "Deployment": {1: ("metadata", "ObjectMeta"), 2: ("spec", "DeploymentSpec"), 3: ("status", "Nothing")},
    "DeploymentSpec": {
        1: ("replicas", "I"),
        2: ("selector", "LabelSelector"),
        3: ("template", "PodTemplateSpec"),
        4: ("strategy", "DeploymentStrategy"),
        5: ("minReadySeconds", "i"),
        6: ("revisionHistoryLimit", "I"),
        7: ("paused", "b"),
        9: ("progressDeadlineSeconds", "I"),
    },
    "DeploymentStrategy": {1: ("type", "s"), 2: ("rollingUpdate", "RollingUpdate")},
    "RollingUpdate": {1: ("maxUnavailable", "IntOrString"), 2: ("maxSurge", "IntOrString")},
    "PodDisruptionBudget": {1: ("metadata", "ObjectMeta"), 2: ("spec", "BudgetSpec"), 3: ("status", "Nothing")},
    "BudgetSpec": {
        1: ("minAvailable", "IntOrString"),
        2: ("selector", "LabelSelector"),
        3: ("maxUnavailable", "IntOrString"),
        4: ("unhealthyPodEvictionPolicy", "s"),
    },
    "NetworkPolicy": {1: ("metadata", "ObjectMeta"), 2: ("spec", "NetworkPolicySpec")},
    "NetworkPolicySpec": {
        1: ("podSelector", "LabelSelector"),
        2: ("ingress", "[IngressRule"),
        3: ("egress", "[EgressRule"),
        4: ("policyTypes", "[s"),
    },
    "IngressRule": {1: ("ports", "[PolicyPort"), 2: ("from", "[PolicyPeer")},
    "EgressRule": {1: ("ports", "[PolicyPort"), 2: ("to", "[PolicyPeer")},
    "PolicyPort": {1: ("protocol", "s"), 2: ("port", "IntOrString"), 3: ("endPort", "I")},
    "PolicyPeer": {1: ("podSelector", "LabelSelector"), 2: ("namespaceSelector", "LabelSelector"), 3: ("ipBlock", "IPBlock")},
    "IPBlock": {1: ("cidr", "s"), 2: ("except", "[s")},
    "EndpointSlice": {
        1: ("metadata", "ObjectMeta"),
        2: ("endpoints", "[Endpoint"),
        3: ("ports", "[EndpointPort"),
        4: ("addressType", "s"),
    },
    "Endpoint": {
        1: ("addresses", "[s"),
        2: ("conditions", "EndpointConditions"),
        3: ("hostname", "S"),
        4: ("targetRef", "Reference"),
        5: ("deprecatedTopology", "{s"),
        6: ("nodeName", "S"),
        7: ("zone", "S"),
    },
    "EndpointConditions": {1: ("ready", "B"), 2: ("serving", "B"), 3: ("terminating", "B")},
    "EndpointPort": {1: ("name", "S"), 2: ("protocol", "S"), 3: ("port", "I"), 4: ("appProtocol", "S")},
    "RuntimeClass": {
        1: ("metadata", "ObjectMeta"),
        2: ("handler", "s"),
        3: ("overhead", "Overhead"),
        4: ("scheduling", "RuntimeScheduling"),
    },
    "Overhead": {1: ("podFixed", "{Quantity")},
    "RuntimeScheduling": {1: ("nodeSelector", "{s"), 2: ("tolerations", "[Toleration")},
    "Toleration": {1: ("key", "s"), 2: ("operator", "s"), 3: ("value", "s"), 4: ("effect", "s"), 5: ("tolerationSeconds", "I")},
    "SelfSubjectAccessReview": {
        1: ("metadata", "ObjectMeta"),
        2: ("spec", "AccessSpec"),
        3: ("status", "AccessStatus"),
    },
    "AccessSpec": {1: ("resourceAttributes", "AccessResource"), 2: ("nonResourceAttributes", "AccessPath")},
    "AccessResource": {
        1: ("namespace", "s"),
        2: ("verb", "s"),
        3: ("group", "s"),
        4: ("version", "s"),
        5: ("resource", "s"),
        6: ("subresource", "s"),
        7: ("name", "s"),
    },
    "AccessPath": {1: ("path", "s"), 2: ("verb", "s")},
    "SelfSubjectRulesReview": {1: ("metadata", "ObjectMeta"), 2: ("spec", "RulesSpec"), 3: ("status", "RulesStatus")},
    "RulesSpec": {1: ("namespace", "s")},
    "RulesStatus": {3: ("incomplete", "b"), 4: ("evaluationError", "s")},
    "SelfSubjectReview": {1: ("metadata", "ObjectMeta"), 2: ("status", "SelfStatus")},
    "SelfStatus": {1: ("userInfo", "UserInfo")},
    "UserInfo": {1: ("username", "s"), 2: ("uid", "s"), 3: ("groups", "[s")},
    "TokenReview": {1: ("metadata", "ObjectMeta"), 2: ("spec", "TokenReviewSpec"), 3: ("status", "TokenReviewStatus")},
    "TokenReviewSpec": {1: ("token", "s"), 2: ("audiences", "[s")},
    "TokenReviewStatus": {1: ("authenticated", "b"), 2: ("user", "UserInfo"), 3: ("error", "s"), 4: ("audiences", "[s")},
    "TokenRequest": {1: ("metadata", "ObjectMeta"), 2: ("spec", "TokenSpec"), 3: ("status", "TokenStatus")},
    "TokenSpec": {1: ("audiences", "[s"), 3: ("boundObjectRef", "BoundReference"), 4: ("expirationSeconds", "I")},
    "TokenStatus": {1: ("token", "s"), 2: ("expirationTimestamp", "t")},
    "BoundReference": {1: ("kind", "s"), 2: ("apiVersion", "s"), 3: ("name", "s"), 4: ("uid", "s")},
    "AccessStatus": {1: ("allowed", "b"), 2: ("reason", "s"), 3: ("evaluationError", "s"), 4: ("denied", "b")},
}
_BY_VERSION = {("events.k8s.io/v1", "Event"): "NewEvent"}
"""Messages of kinds whose name is ambiguous without the API version."""
_OMIT_IF_EMPTY = ("status", "strategy")
"""Fields that Go clients always send; omitted if empty."""


class _DecodeError(Exception):
    """The bytes are not a valid message of this kind."""


def decode_protobuf(body: bytes) -> Obj:
    """Decode an object. Raises BadRequest for malformed bytes and unsupported kinds or fields."""
    if not body.startswith(MAGIC):
        raise BadRequest("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")
    try:
        envelope = dict(_fields(body[len(MAGIC) :]))
        kind_of = dict(_fields(_bytes(envelope.get(1, b""))))
        api_version, kind = (_bytes(kind_of.get(number, b"")).decode() for number in (1, 2))
        message = _BY_VERSION.get((api_version, kind), kind)
        if message not in _MESSAGES:
            raise BadRequest(f"{kind or 'a body without a kind'} cannot be read from protobuf; send it as application/json")
        return {"apiVersion": api_version, "kind": kind, **_message(message, _bytes(envelope.get(2, b"")))}
    except (_DecodeError, UnicodeDecodeError) as error:
        raise BadRequest(f"proto: {error}") from None


def _message(name: str, data: bytes) -> Obj:
    known, found = _MESSAGES[name], {}  # type: tuple[dict[int, _Field], Obj]
    for number, raw in _fields(data):
        if number not in known:
            if raw in (b"", 0):
                continue
            raise _DecodeError(f"field {number} of {name} is not understood; send it as application/json")
        field, sort = known[number]
        if sort[0] == "[":
            found.setdefault(field, []).append(_value(sort[1:], raw))
        elif sort[0] == "{":
            pair = dict(_fields(_bytes(raw)))
            key = _bytes(pair.get(1, b"")).decode()
            found.setdefault(field, {})[key] = _value(sort[1:], pair.get(2, b""))
        else:
            value = _value(sort, raw)
            if not (value is None or (sort in "sib" and not value) or (field in _OMIT_IF_EMPTY and value == {})):
                found[field] = value
    return found


def _value(sort: str, raw: bytes | int) -> Any:
    match sort:
        case "s" | "S":
            return _bytes(raw).decode()
        case "y":
            return base64.b64encode(_bytes(raw)).decode()
        case "i" | "I":
            return _number(raw)
        case "b" | "B":
            return bool(_number(raw))
        case "t" | "u":
            return _time(_bytes(raw), micro=sort == "u")
        case "Quantity":
            return _bytes(dict(_fields(_bytes(raw))).get(1, b"")).decode()
        case "IntOrString":
            parts = dict(_fields(_bytes(raw)))
            return _bytes(parts.get(3, b"")).decode() if parts.get(1) else _number(parts.get(2, 0))
    return _message(sort, _bytes(raw))


def _time(data: bytes, *, micro: bool) -> str | None:
    parts = dict(_fields(data))
    if not parts:
        return None
    moment = datetime.fromtimestamp(_number(parts.get(1, 0)), UTC)
    fraction = f".{_number(parts.get(2, 0)) // 1000:06d}" if micro else ""
    return moment.strftime("%Y-%m-%dT%H:%M:%S") + fraction + "Z"


def _bytes(raw: bytes | int) -> bytes:
    if not isinstance(raw, bytes):
        raise _DecodeError("wrong wireType")
    return raw


def _number(raw: bytes | int) -> int:
    if not isinstance(raw, int):
        raise _DecodeError("wrong wireType")
    return raw - (1 << 64) if raw >= 1 << 63 else raw


def _fields(data: bytes) -> Iterator[tuple[int, bytes | int]]:
    """The number and raw value of each field: an integer for varints, bytes for length-delimited fields."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        if tag & 7 == 0:
            value, at = _varint(data, at)
            yield tag >> 3, value
        elif tag & 7 == 2:
            size, at = _varint(data, at)
            if at + size > len(data):
                raise _DecodeError("unexpected EOF")
            yield tag >> 3, data[at : at + size]
            at += size
        else:
            raise _DecodeError(f"illegal wireType {tag & 7}")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 64:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise _DecodeError("unexpected EOF")
