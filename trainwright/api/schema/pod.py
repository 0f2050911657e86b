"""Schema of a Pod's spec and template inside a JobSet or a runtime."""

from __future__ import annotations

from trainwright.api.schema.container import CONTAINER, EPHEMERAL_CONTAINER, RESOURCES
from trainwright.api.schema.references import (
    LABEL_SELECTOR,
    NAME_AND_VALUE,
    NAME_REF,
    NAMED,
    PROFILE,
    REQUIREMENT,
    SELINUX,
    TEMPLATE_METADATA,
    WINDOWS,
)
from trainwright.api.schema.types import BOOLEAN, INT, LONG, QUANTITIES, STRING, STRINGS, ListOf, MapOf, Struct
from trainwright.api.schema.volumes import VOLUME

NODE_SELECTOR_TERM = Struct({"matchExpressions": ListOf(REQUIREMENT), "matchFields": ListOf(REQUIREMENT)}, atomic=True)
NODE_AFFINITY = Struct(
    {
        "preferredDuringSchedulingIgnoredDuringExecution": ListOf(
            Struct({"preference": NODE_SELECTOR_TERM, "weight": INT}, ("preference", "weight"))
        ),
        "requiredDuringSchedulingIgnoredDuringExecution": Struct(
            {"nodeSelectorTerms": ListOf(NODE_SELECTOR_TERM)}, ("nodeSelectorTerms",), atomic=True
        ),
    }
)
POD_AFFINITY_TERM = Struct(
    {
        "labelSelector": LABEL_SELECTOR,
        "matchLabelKeys": STRINGS,
        "mismatchLabelKeys": STRINGS,
        "namespaceSelector": LABEL_SELECTOR,
        "namespaces": STRINGS,
        "topologyKey": STRING,
    },
    ("topologyKey",),
)
POD_AFFINITY = Struct(
    {
        "preferredDuringSchedulingIgnoredDuringExecution": ListOf(
            Struct({"podAffinityTerm": POD_AFFINITY_TERM, "weight": INT}, ("podAffinityTerm", "weight"))
        ),
        "requiredDuringSchedulingIgnoredDuringExecution": ListOf(POD_AFFINITY_TERM),
    }
)
AFFINITY = Struct(
    {"nodeAffinity": NODE_AFFINITY, "podAffinity": POD_AFFINITY, "podAntiAffinity": POD_AFFINITY}, type_name="Affinity"
)
POD_SECURITY_CONTEXT = Struct(
    {
        "appArmorProfile": PROFILE,
        "fsGroup": LONG,
        "fsGroupChangePolicy": STRING,
        "runAsGroup": LONG,
        "runAsNonRoot": BOOLEAN,
        "runAsUser": LONG,
        "seLinuxChangePolicy": STRING,
        "seLinuxOptions": SELINUX,
        "seccompProfile": PROFILE,
        "supplementalGroups": ListOf(LONG),
        "supplementalGroupsPolicy": STRING,
        "sysctls": ListOf(NAME_AND_VALUE),
        "windowsOptions": WINDOWS,
    },
    type_name="PodSecurityContext",
)
TOLERATION = Struct(
    {"effect": STRING, "key": STRING, "operator": STRING, "tolerationSeconds": LONG, "value": STRING}, type_name="Toleration"
)
TOPOLOGY_SPREAD = Struct(
    {
        "labelSelector": LABEL_SELECTOR,
        "matchLabelKeys": STRINGS,
        "maxSkew": INT,
        "minDomains": INT,
        "nodeAffinityPolicy": STRING,
        "nodeTaintsPolicy": STRING,
        "topologyKey": STRING,
        "whenUnsatisfiable": STRING,
    },
    ("maxSkew", "topologyKey", "whenUnsatisfiable"),
    type_name="TopologySpreadConstraint",
)
POD_SPEC = Struct(
    {
        "activeDeadlineSeconds": LONG,
        "affinity": AFFINITY,
        "automountServiceAccountToken": BOOLEAN,
        "containers": ListOf(CONTAINER, keys=("name",)),
        "dnsConfig": Struct(
            {"nameservers": STRINGS, "options": ListOf(Struct({"name": STRING, "value": STRING})), "searches": STRINGS}
        ),
        "dnsPolicy": STRING,
        "enableServiceLinks": BOOLEAN,
        "ephemeralContainers": ListOf(EPHEMERAL_CONTAINER, keys=("name",)),
        "hostAliases": ListOf(Struct({"hostnames": STRINGS, "ip": STRING}, ("ip",)), keys=("ip",)),
        "hostIPC": BOOLEAN,
        "hostNetwork": BOOLEAN,
        "hostPID": BOOLEAN,
        "hostUsers": BOOLEAN,
        "hostname": STRING,
        "hostnameOverride": STRING,
        "imagePullSecrets": ListOf(NAME_REF, keys=("name",)),
        "initContainers": ListOf(CONTAINER, keys=("name",)),
        "nodeName": STRING,
        "nodeSelector": MapOf(STRING, atomic=True),
        "os": NAMED,
        "overhead": QUANTITIES,
        "preemptionPolicy": STRING,
        "priority": INT,
        "priorityClassName": STRING,
        "readinessGates": ListOf(Struct({"conditionType": STRING}, ("conditionType",))),
        "resourceClaims": ListOf(
            Struct({"name": STRING, "resourceClaimName": STRING, "resourceClaimTemplateName": STRING}, ("name",)), keys=("name",)
        ),
        "resources": RESOURCES,
        "restartPolicy": STRING,
        "runtimeClassName": STRING,
        "schedulerName": STRING,
        "schedulingGates": ListOf(NAMED, keys=("name",)),
        "schedulingGroup": Struct({"podGroupName": STRING}),
        "securityContext": POD_SECURITY_CONTEXT,
        "serviceAccount": STRING,
        "serviceAccountName": STRING,
        "setHostnameAsFQDN": BOOLEAN,
        "shareProcessNamespace": BOOLEAN,
        "subdomain": STRING,
        "terminationGracePeriodSeconds": LONG,
        "tolerations": ListOf(TOLERATION),
        "topologySpreadConstraints": ListOf(TOPOLOGY_SPREAD, keys=("topologyKey", "whenUnsatisfiable")),
        "volumes": ListOf(VOLUME, keys=("name",)),
    },
    ("containers",),
    type_name="PodSpec",
)
POD_TEMPLATE = Struct({"metadata": TEMPLATE_METADATA, "spec": POD_SPEC}, type_name="PodTemplateSpec", written=("metadata",))
