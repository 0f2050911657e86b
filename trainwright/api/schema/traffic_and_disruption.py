"""Schemas of NetworkPolicy (networking.k8s.io/v1) and PodDisruptionBudget (policy/v1)."""

from __future__ import annotations

from trainwright.api.schema.core import CONDITION, MOMENT, whole_object
from trainwright.api.schema.references import LABEL_SELECTOR
from trainwright.api.schema.types import INT, INT_OR_STRING, LONG, STRING, STRINGS, ListOf, MapOf, String, Struct

_PORT = Struct(
    {"endPort": INT, "port": INT_OR_STRING, "protocol": String(default="TCP")},
    type_name="NetworkPolicyPort",
)
_PEER = Struct(
    {
        "ipBlock": Struct({"cidr": STRING, "except": STRINGS}, ("cidr",), type_name="IPBlock"),
        "namespaceSelector": LABEL_SELECTOR,
        "podSelector": LABEL_SELECTOR,
    },
    type_name="NetworkPolicyPeer",
)
NETWORK_POLICY = whole_object(
    spec=Struct(
        {
            "egress": ListOf(Struct({"ports": ListOf(_PORT), "to": ListOf(_PEER)}, type_name="NetworkPolicyEgressRule")),
            "ingress": ListOf(Struct({"from": ListOf(_PEER), "ports": ListOf(_PORT)}, type_name="NetworkPolicyIngressRule")),
            "podSelector": LABEL_SELECTOR,
            "policyTypes": STRINGS,
        },
        type_name="NetworkPolicySpec",
    )
)
_COUNTS = ("currentHealthy", "desiredHealthy", "disruptionsAllowed", "expectedPods")
DISRUPTION_BUDGET = whole_object(
    spec=Struct(
        {
            "maxUnavailable": INT_OR_STRING,
            "minAvailable": INT_OR_STRING,
            "selector": LABEL_SELECTOR,
            "unhealthyPodEvictionPolicy": STRING,
        },
        type_name="PodDisruptionBudgetSpec",
    ),
    status=Struct(
        {
            "conditions": ListOf(CONDITION, keys=("type",)),
            "disruptedPods": MapOf(MOMENT),
            "observedGeneration": LONG,
            **dict.fromkeys(_COUNTS, INT),
        },
        type_name="PodDisruptionBudgetStatus",
    ),
)
