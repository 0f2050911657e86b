"""Shape of a Pod's spec and template, as a JobSet or a runtime holds it."""

from __future__ import annotations

from trainwright.api.container_shapes import CONTAINER, EPHEMERAL_CONTAINER, RESOURCES
from trainwright.api.reference_shapes import (
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
from trainwright.api.shapes import FLAG, INT, LONG, QUANTITIES, TEXT, TEXTS, Mapping, Record, Sequence
from trainwright.api.volume_shapes import VOLUME

NODE_SELECTOR_TERM = Record({"matchExpressions": Sequence(REQUIREMENT), "matchFields": Sequence(REQUIREMENT)}, atomic=True)
NODE_AFFINITY = Record(
    {
        "preferredDuringSchedulingIgnoredDuringExecution": Sequence(
            Record({"preference": NODE_SELECTOR_TERM, "weight": INT}, ("preference", "weight"))
        ),
        "requiredDuringSchedulingIgnoredDuringExecution": Record(
            {"nodeSelectorTerms": Sequence(NODE_SELECTOR_TERM)}, ("nodeSelectorTerms",), atomic=True
        ),
    }
)
POD_AFFINITY_TERM = Record(
    {
        "labelSelector": LABEL_SELECTOR,
        "matchLabelKeys": TEXTS,
        "mismatchLabelKeys": TEXTS,
        "namespaceSelector": LABEL_SELECTOR,
        "namespaces": TEXTS,
        "topologyKey": TEXT,
    },
    ("topologyKey",),
)
POD_AFFINITY = Record(
    {
        "preferredDuringSchedulingIgnoredDuringExecution": Sequence(
            Record({"podAffinityTerm": POD_AFFINITY_TERM, "weight": INT}, ("podAffinityTerm", "weight"))
        ),
        "requiredDuringSchedulingIgnoredDuringExecution": Sequence(POD_AFFINITY_TERM),
    }
)
AFFINITY = Record(
    {"nodeAffinity": NODE_AFFINITY, "podAffinity": POD_AFFINITY, "podAntiAffinity": POD_AFFINITY}, type_name="Affinity"
)
POD_SECURITY_CONTEXT = Record(
    {
        "appArmorProfile": PROFILE,
        "fsGroup": LONG,
        "fsGroupChangePolicy": TEXT,
        "runAsGroup": LONG,
        "runAsNonRoot": FLAG,
        "runAsUser": LONG,
        "seLinuxChangePolicy": TEXT,
        "seLinuxOptions": SELINUX,
        "seccompProfile": PROFILE,
        "supplementalGroups": Sequence(LONG),
        "supplementalGroupsPolicy": TEXT,
        "sysctls": Sequence(NAME_AND_VALUE),
        "windowsOptions": WINDOWS,
    },
    type_name="PodSecurityContext",
)
TOLERATION = Record(
    {"effect": TEXT, "key": TEXT, "operator": TEXT, "tolerationSeconds": LONG, "value": TEXT}, type_name="Toleration"
)
TOPOLOGY_SPREAD = Record(
    {
        "labelSelector": LABEL_SELECTOR,
        "matchLabelKeys": TEXTS,
        "maxSkew": INT,
        "minDomains": INT,
        "nodeAffinityPolicy": TEXT,
        "nodeTaintsPolicy": TEXT,
        "topologyKey": TEXT,
        "whenUnsatisfiable": TEXT,
    },
    ("maxSkew", "topologyKey", "whenUnsatisfiable"),
    type_name="TopologySpreadConstraint",
)
POD_SPEC = Record(
    {
        "activeDeadlineSeconds": LONG,
        "affinity": AFFINITY,
        "automountServiceAccountToken": FLAG,
        "containers": Sequence(CONTAINER, keys=("name",)),
        "dnsConfig": Record(
            {"nameservers": TEXTS, "options": Sequence(Record({"name": TEXT, "value": TEXT})), "searches": TEXTS}
        ),
        "dnsPolicy": TEXT,
        "enableServiceLinks": FLAG,
        "ephemeralContainers": Sequence(EPHEMERAL_CONTAINER, keys=("name",)),
        "hostAliases": Sequence(Record({"hostnames": TEXTS, "ip": TEXT}, ("ip",)), keys=("ip",)),
        "hostIPC": FLAG,
        "hostNetwork": FLAG,
        "hostPID": FLAG,
        "hostUsers": FLAG,
        "hostname": TEXT,
        "hostnameOverride": TEXT,
        "imagePullSecrets": Sequence(NAME_REF, keys=("name",)),
        "initContainers": Sequence(CONTAINER, keys=("name",)),
        "nodeName": TEXT,
        "nodeSelector": Mapping(TEXT, atomic=True),
        "os": NAMED,
        "overhead": QUANTITIES,
        "preemptionPolicy": TEXT,
        "priority": INT,
        "priorityClassName": TEXT,
        "readinessGates": Sequence(Record({"conditionType": TEXT}, ("conditionType",))),
        "resourceClaims": Sequence(
            Record({"name": TEXT, "resourceClaimName": TEXT, "resourceClaimTemplateName": TEXT}, ("name",)), keys=("name",)
        ),
        "resources": RESOURCES,
        "restartPolicy": TEXT,
        "runtimeClassName": TEXT,
        "schedulerName": TEXT,
        "schedulingGates": Sequence(NAMED, keys=("name",)),
        "schedulingGroup": Record({"podGroupName": TEXT}),
        "securityContext": POD_SECURITY_CONTEXT,
        "serviceAccount": TEXT,
        "serviceAccountName": TEXT,
        "setHostnameAsFQDN": FLAG,
        "shareProcessNamespace": FLAG,
        "subdomain": TEXT,
        "terminationGracePeriodSeconds": LONG,
        "tolerations": Sequence(TOLERATION),
        "topologySpreadConstraints": Sequence(TOPOLOGY_SPREAD, keys=("topologyKey", "whenUnsatisfiable")),
        "volumes": Sequence(VOLUME, keys=("name",)),
    },
    ("containers",),
    type_name="PodSpec",
)
POD_TEMPLATE = Record({"metadata": TEMPLATE_METADATA, "spec": POD_SPEC}, type_name="PodTemplateSpec", written=("metadata",))
