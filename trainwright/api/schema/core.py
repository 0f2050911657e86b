"""Schemas of the core kinds that the embedded cluster serves, as whole objects."""

from __future__ import annotations

from trainwright.api.schema.pod import POD_TEMPLATE
from trainwright.api.schema.references import NAME_REF
from trainwright.api.schema.types import (
    ANY_VALUE,
    BOOLEAN,
    INT,
    INT_OR_STRING,
    LONG,
    QUANTITIES,
    STRING,
    STRING_MAP,
    STRINGS,
    ListOf,
    MapOf,
    Schema,
    String,
    Struct,
)
from trainwright.api.schema.volumes import CLAIM_SPEC, CLAIM_TEMPLATE

MOMENT = String(moment=True)
BYTES = String(base64=True)
CONDITION = Struct(
    {
        "lastTransitionTime": MOMENT,
        "message": STRING,
        "observedGeneration": LONG,
        "reason": STRING,
        "status": STRING,
        "type": STRING,
    },
    ("status", "type"),
    type_name="Condition",
)


def whole_object(**parts: Schema) -> Struct:
    """The schema of a kind with metadata and the given parts."""
    return Struct({"apiVersion": STRING, "kind": STRING, "metadata": ANY_VALUE, **parts})


CONFIG_MAP = whole_object(binaryData=MapOf(BYTES), data=STRING_MAP, immutable=BOOLEAN)
SECRET = whole_object(data=MapOf(BYTES), immutable=BOOLEAN, stringData=STRING_MAP, type=STRING)
_SERVICE_PORT = Struct(
    {
        "appProtocol": STRING,
        "name": STRING,
        "nodePort": INT,
        "port": INT,
        "protocol": String(default="TCP"),
        "targetPort": INT_OR_STRING,
    },
    ("port",),
    type_name="ServicePort",
)
SERVICE = whole_object(
    spec=Struct(
        {
            "allocateLoadBalancerNodePorts": BOOLEAN,
            "clusterIP": STRING,
            "clusterIPs": STRINGS,
            "externalIPs": STRINGS,
            "externalName": STRING,
            "externalTrafficPolicy": STRING,
            "healthCheckNodePort": INT,
            "internalTrafficPolicy": STRING,
            "ipFamilies": STRINGS,
            "ipFamilyPolicy": STRING,
            "loadBalancerClass": STRING,
            "loadBalancerIP": STRING,
            "loadBalancerSourceRanges": STRINGS,
            "ports": ListOf(_SERVICE_PORT, keys=("port", "protocol")),
            "publishNotReadyAddresses": BOOLEAN,
            "selector": MapOf(STRING, atomic=True),
            "sessionAffinity": STRING,
            "sessionAffinityConfig": Struct({"clientIP": Struct({"timeoutSeconds": INT})}),
            "trafficDistribution": STRING,
            "type": STRING,
        },
        type_name="ServiceSpec",
    ),
    status=Struct(
        {"conditions": ListOf(CONDITION, keys=("type",)), "loadBalancer": Struct(open=True)}, type_name="ServiceStatus"
    ),
)
REFERENCE = Struct(
    {
        "apiVersion": STRING,
        "fieldPath": STRING,
        "kind": STRING,
        "name": STRING,
        "namespace": STRING,
        "resourceVersion": STRING,
        "uid": STRING,
    },
    type_name="ObjectReference",
    atomic=True,
)
EVENT = whole_object(
    action=STRING,
    count=INT,
    eventTime=MOMENT,
    firstTimestamp=MOMENT,
    involvedObject=REFERENCE,
    lastTimestamp=MOMENT,
    message=STRING,
    reason=STRING,
    related=REFERENCE,
    reportingComponent=STRING,
    reportingInstance=STRING,
    series=Struct({"count": INT, "lastObservedTime": MOMENT}, type_name="EventSeries"),
    source=Struct({"component": STRING, "host": STRING}, type_name="EventSource"),
    type=STRING,
)
NAMESPACE = whole_object(
    spec=Struct({"finalizers": STRINGS}, type_name="NamespaceSpec"),
    status=Struct({"conditions": ListOf(CONDITION, keys=("type",)), "phase": STRING}, type_name="NamespaceStatus"),
)
_ADDRESS = Struct({"address": STRING, "type": STRING}, type_name="NodeAddress")
_TAINT = Struct({"effect": STRING, "key": STRING, "timeAdded": MOMENT, "value": STRING}, type_name="Taint")
NODE = whole_object(
    spec=Struct({"taints": ListOf(_TAINT), "unschedulable": BOOLEAN}, type_name="NodeSpec", open=True),
    status=Struct(
        {
            "addresses": ListOf(_ADDRESS),
            "allocatable": QUANTITIES,
            "capacity": QUANTITIES,
            "conditions": ListOf(
                Struct({**CONDITION.fields, "lastHeartbeatTime": MOMENT}, type_name="NodeCondition"), keys=("type",)
            ),
            "nodeInfo": Struct(
                dict.fromkeys(("kernelVersion", "kubeletVersion", "osImage"), STRING), type_name="NodeSystemInfo", open=True
            ),
        },
        type_name="NodeStatus",
        open=True,
    ),
)
"""The fields of a Node that we read; a real one has more."""
CLAIM = whole_object(spec=CLAIM_SPEC, status=CLAIM_TEMPLATE.fields["status"])
SERVICE_ACCOUNT = whole_object(
    automountServiceAccountToken=BOOLEAN,
    imagePullSecrets=ListOf(NAME_REF),
    secrets=ListOf(REFERENCE, keys=("name",)),
)
POD_TEMPLATE_OBJECT = whole_object(template=POD_TEMPLATE)
_LIMITS = ("default", "defaultRequest", "max", "maxLimitRequestRatio", "min")
LIMIT_RANGE = whole_object(
    spec=Struct(
        {"limits": ListOf(Struct({"type": STRING, **dict.fromkeys(_LIMITS, QUANTITIES)}, ("type",), type_name="LimitRangeItem"))},
        ("limits",),
        type_name="LimitRangeSpec",
    )
)
LEASE = whole_object(
    spec=Struct(
        {
            "acquireTime": MOMENT,
            "holderIdentity": STRING,
            "leaseDurationSeconds": INT,
            "leaseTransitions": INT,
            "preferredHolder": STRING,
            "renewTime": MOMENT,
            "strategy": STRING,
        },
        type_name="LeaseSpec",
    )
)
PRIORITY_CLASS = whole_object(description=STRING, globalDefault=BOOLEAN, preemptionPolicy=STRING, value=INT)
RUNTIME_CLASS = whole_object(
    handler=STRING,
    overhead=Struct({"podFixed": QUANTITIES}, type_name="Overhead"),
    scheduling=Struct({"nodeSelector": MapOf(STRING, atomic=True), "tolerations": ListOf(ANY_VALUE)}, type_name="Scheduling"),
)
