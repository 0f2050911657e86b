"""What a pod may say of host names, user ids, gates and spreading: as a real API server takes it, and refuses it."""

from __future__ import annotations

from typing import Any

import pytest
from factories import pod

from trainwright.api.admission.admit import admit
from trainwright.api.errors import Invalid

ID = 2**31 - 1


def admitted(container: dict[str, Any] | None = None, **spec: Any) -> None:
    admit(pod(container={"name": "c", "image": "x", "command": ["true"], **(container or {})}, **spec))


@pytest.mark.parametrize(
    ("spec", "where"),
    [
        ({"hostAliases": [None]}, "spec.hostAliases[0].ip"),
        ({"hostAliases": [{"ip": "10.0.0.1\n", "hostnames": ["a"]}]}, "spec.hostAliases[0].ip"),
        ({"hostAliases": [{"ip": "fe80::1%eth0"}]}, "spec.hostAliases[0].ip"),
        ({"hostAliases": [{"ip": "10.0.0.1", "hostnames": ["a\tb"]}]}, "spec.hostAliases[0].hostnames[0]"),
        ({"hostnameOverride": "x\n127.0.0.1\thuggingface.co"}, "spec.hostnameOverride"),
        ({"hostnameOverride": "a" * 65}, "spec.hostnameOverride"),
        ({"securityContext": {"runAsUser": -1}}, "spec.securityContext.runAsUser"),
        ({"securityContext": {"runAsUser": 2**32 - 1, "runAsNonRoot": True}}, "spec.securityContext.runAsUser"),
        ({"securityContext": {"runAsGroup": ID + 1}}, "spec.securityContext.runAsGroup"),
        ({"securityContext": {"fsGroup": ID + 1}}, "spec.securityContext.fsGroup"),
        ({"securityContext": {"supplementalGroups": [0, ID + 1]}}, "spec.securityContext.supplementalGroups[1]"),
        ({"container": {"securityContext": {"runAsUser": ID + 1}}}, "spec.containers[0].securityContext.runAsUser"),
        ({"container": {"ports": [None]}}, "spec.containers[0].ports[0].containerPort"),
        ({"container": {"envFrom": [None]}}, "spec.containers[0].envFrom[0]"),
        ({"tolerations": [None]}, "spec.tolerations[0].operator"),
        ({"schedulingGates": [None]}, "spec.schedulingGates[0].name"),
        ({"readinessGates": [None]}, "spec.readinessGates[0].conditionType"),
        ({"dnsConfig": {"options": [None]}}, "spec.dnsConfig.options[0]"),
        ({"topologySpreadConstraints": [None]}, "spec.topologySpreadConstraints[0].maxSkew"),
    ],
)
def test_invalid_pod_settings_are_refused_by_field(spec: dict[str, Any], where: str) -> None:
    with pytest.raises(Invalid) as refused:
        admitted(**spec)
    assert where in refused.value.message


@pytest.mark.parametrize(
    "spec",
    [
        {"hostAliases": [{"ip": "10.0.0.1", "hostnames": ["a", "b.example"]}, {"ip": "2001:db8::1"}]},
        {"hostnameOverride": "trainer-0.example"},
        {"securityContext": {"runAsUser": ID, "runAsGroup": 0, "fsGroup": 1000, "supplementalGroups": [0, ID]}},
        {"tolerations": [{"operator": "Exists"}, {"key": "gpu"}, {"key": "a", "operator": "Equal", "value": "b"}]},
        {"schedulingGates": [{"name": "example.com/gate"}]},
        {"readinessGates": [{"conditionType": "example.com/Ready"}]},
        {"dnsConfig": {"options": [{"name": "ndots", "value": "2"}]}},
        {"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]},
        {"container": {"ports": [{"containerPort": 80}], "envFrom": [{"configMapRef": {"name": "a"}}]}},
        {"imagePullSecrets": [None]},
    ],
)
def test_valid_pod_settings_are_admitted(spec: dict[str, Any]) -> None:
    admitted(**spec)
