"""Shapes of the plain kinds of the core group that a cluster of ours serves, whole objects each."""

from __future__ import annotations

from trainwright.api.pod_shapes import POD_TEMPLATE
from trainwright.api.reference_shapes import NAME_REF
from trainwright.api.shapes import (
    ANYTHING,
    FLAG,
    INT,
    INT_OR_TEXT,
    LONG,
    QUANTITIES,
    TEXT,
    TEXT_MAP,
    TEXTS,
    Mapping,
    Record,
    Sequence,
    Shape,
    Text,
)
from trainwright.api.volume_shapes import CLAIM_SPEC, CLAIM_TEMPLATE

MOMENT = Text(moment=True)
BYTES = Text(base64=True)
_CONDITION = Record(
    {
        "lastTransitionTime": MOMENT,
        "message": TEXT,
        "observedGeneration": LONG,
        "reason": TEXT,
        "status": TEXT,
        "type": TEXT,
    },
    ("status", "type"),
    type_name="Condition",
)


def whole_object(**parts: Shape) -> Record:
    """The shape of a kind around what it has besides metadata."""
    return Record({"apiVersion": TEXT, "kind": TEXT, "metadata": ANYTHING, **parts})


CONFIG_MAP = whole_object(binaryData=Mapping(BYTES), data=TEXT_MAP, immutable=FLAG)
SECRET = whole_object(data=Mapping(BYTES), immutable=FLAG, stringData=TEXT_MAP, type=TEXT)
_SERVICE_PORT = Record(
    {
        "appProtocol": TEXT,
        "name": TEXT,
        "nodePort": INT,
        "port": INT,
        "protocol": Text(default="TCP"),
        "targetPort": INT_OR_TEXT,
    },
    ("port",),
    type_name="ServicePort",
)
SERVICE = whole_object(
    spec=Record(
        {
            "allocateLoadBalancerNodePorts": FLAG,
            "clusterIP": TEXT,
            "clusterIPs": TEXTS,
            "externalIPs": TEXTS,
            "externalName": TEXT,
            "externalTrafficPolicy": TEXT,
            "healthCheckNodePort": INT,
            "internalTrafficPolicy": TEXT,
            "ipFamilies": TEXTS,
            "ipFamilyPolicy": TEXT,
            "loadBalancerClass": TEXT,
            "loadBalancerIP": TEXT,
            "loadBalancerSourceRanges": TEXTS,
            "ports": Sequence(_SERVICE_PORT, keys=("port", "protocol")),
            "publishNotReadyAddresses": FLAG,
            "selector": Mapping(TEXT, atomic=True),
            "sessionAffinity": TEXT,
            "sessionAffinityConfig": Record({"clientIP": Record({"timeoutSeconds": INT})}),
            "trafficDistribution": TEXT,
            "type": TEXT,
        },
        type_name="ServiceSpec",
    ),
    status=Record(
        {"conditions": Sequence(_CONDITION, keys=("type",)), "loadBalancer": Record(open=True)}, type_name="ServiceStatus"
    ),
)
REFERENCE = Record(
    {
        "apiVersion": TEXT,
        "fieldPath": TEXT,
        "kind": TEXT,
        "name": TEXT,
        "namespace": TEXT,
        "resourceVersion": TEXT,
        "uid": TEXT,
    },
    type_name="ObjectReference",
    atomic=True,
)
EVENT = whole_object(
    action=TEXT,
    count=INT,
    eventTime=MOMENT,
    firstTimestamp=MOMENT,
    involvedObject=REFERENCE,
    lastTimestamp=MOMENT,
    message=TEXT,
    reason=TEXT,
    related=REFERENCE,
    reportingComponent=TEXT,
    reportingInstance=TEXT,
    series=Record({"count": INT, "lastObservedTime": MOMENT}, type_name="EventSeries"),
    source=Record({"component": TEXT, "host": TEXT}, type_name="EventSource"),
    type=TEXT,
)
NAMESPACE = whole_object(
    spec=Record({"finalizers": TEXTS}, type_name="NamespaceSpec"),
    status=Record({"conditions": Sequence(_CONDITION, keys=("type",)), "phase": TEXT}, type_name="NamespaceStatus"),
)
_ADDRESS = Record({"address": TEXT, "type": TEXT}, type_name="NodeAddress")
_TAINT = Record({"effect": TEXT, "key": TEXT, "timeAdded": MOMENT, "value": TEXT}, type_name="Taint")
NODE = whole_object(
    spec=Record({"taints": Sequence(_TAINT), "unschedulable": FLAG}, type_name="NodeSpec", open=True),
    status=Record(
        {
            "addresses": Sequence(_ADDRESS),
            "allocatable": QUANTITIES,
            "capacity": QUANTITIES,
            "conditions": Sequence(
                Record({**_CONDITION.fields, "lastHeartbeatTime": MOMENT}, type_name="NodeCondition"), keys=("type",)
            ),
            "nodeInfo": Record(
                dict.fromkeys(("kernelVersion", "kubeletVersion", "osImage"), TEXT), type_name="NodeSystemInfo", open=True
            ),
        },
        type_name="NodeStatus",
        open=True,
    ),
)
"""What is read of a node; there is more to one on a cluster."""
CLAIM = whole_object(spec=CLAIM_SPEC, status=CLAIM_TEMPLATE.fields["status"])
SERVICE_ACCOUNT = whole_object(
    automountServiceAccountToken=FLAG,
    imagePullSecrets=Sequence(NAME_REF),
    secrets=Sequence(REFERENCE, keys=("name",)),
)
POD_TEMPLATE_OBJECT = whole_object(template=POD_TEMPLATE)
_LIMITS = ("default", "defaultRequest", "max", "maxLimitRequestRatio", "min")
LIMIT_RANGE = whole_object(
    spec=Record(
        {"limits": Sequence(Record({"type": TEXT, **dict.fromkeys(_LIMITS, QUANTITIES)}, ("type",), type_name="LimitRangeItem"))},
        ("limits",),
        type_name="LimitRangeSpec",
    )
)
LEASE = whole_object(
    spec=Record(
        {
            "acquireTime": MOMENT,
            "holderIdentity": TEXT,
            "leaseDurationSeconds": INT,
            "leaseTransitions": INT,
            "preferredHolder": TEXT,
            "renewTime": MOMENT,
            "strategy": TEXT,
        },
        type_name="LeaseSpec",
    )
)
PRIORITY_CLASS = whole_object(description=TEXT, globalDefault=FLAG, preemptionPolicy=TEXT, value=INT)
RUNTIME_CLASS = whole_object(
    handler=TEXT,
    overhead=Record({"podFixed": QUANTITIES}, type_name="Overhead"),
    scheduling=Record({"nodeSelector": Mapping(TEXT, atomic=True), "tolerations": Sequence(ANYTHING)}, type_name="Scheduling"),
)
