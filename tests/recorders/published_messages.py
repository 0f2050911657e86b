"""Writes `messages.json` of the API server: the protobuf messages of its kinds, from the published numbers of the Kubernetes API.

Published are number, name and type of each field. Whether a field is part of the JSON, and required, is in the schemas of Kubernetes;
whether Go's types hold it by a pointer, so that zero is a value, is published nowhere: it is listed here.
"""

from __future__ import annotations

import json
import re
from typing import Any

from trainwright.api import kinds
from trainwright.controlplane.apiserver.endpoints.reviews import REVIEWS

Fields = dict[str, tuple[str, str]]
SPECIAL = ("ExtraValue", "FieldsV1", "IntOrString", "MicroTime", "Quantity", "Time")
"""Messages that are scalars or lists in JSON; the decoder knows them."""
OTHER_ROOTS = (
    ("authentication.k8s.io", "TokenRequest"),
    ("", "Binding"),
    ("policy", "Eviction"),
)
"""What the server reads beside its kinds and reviews."""
HELD_BY_VALUE = {
    "AWSElasticBlockStoreVolumeSource": "partition readOnly",
    "AzureFileVolumeSource": "readOnly",
    "CephFSVolumeSource": "readOnly",
    "CinderVolumeSource": "readOnly",
    "Condition": "observedGeneration",
    "Container": "stdin stdinOnce tty",
    "ContainerImage": "sizeBytes",
    "ContainerPort": "hostPort",
    "ContainerStateTerminated": "signal",
    "DeploymentSpec": "minReadySeconds paused",
    "DeploymentStatus": "availableReplicas observedGeneration readyReplicas replicas unavailableReplicas updatedReplicas",
    "EphemeralContainerCommon": "stdin stdinOnce tty",
    "Event": "count deprecatedCount",
    "EventSeries": "count",
    "FCVolumeSource": "readOnly",
    "FlexVolumeSource": "readOnly",
    "GCEPersistentDiskVolumeSource": "partition readOnly",
    "GlusterfsVolumeSource": "readOnly",
    "ISCSIVolumeSource": "chapAuthDiscovery chapAuthSession readOnly",
    "JobStatus": "active failed succeeded",
    "NFSVolumeSource": "readOnly",
    "NodeSpec": "unschedulable",
    "ObjectMeta": "generation",
    "PersistentVolumeClaimVolumeSource": "readOnly",
    "PodCondition": "observedGeneration",
    "PodDisruptionBudgetStatus": "observedGeneration",
    "PodSpec": "hostIPC hostNetwork hostPID",
    "PodStatus": "observedGeneration",
    "PortworxVolumeSource": "readOnly",
    "PriorityClass": "globalDefault",
    "Probe": "failureThreshold initialDelaySeconds periodSeconds successThreshold timeoutSeconds",
    "QuobyteVolumeSource": "readOnly",
    "RBDVolumeSource": "readOnly",
    "ScaleIOVolumeSource": "readOnly sslEnabled",
    "ServicePort": "nodePort",
    "ServiceSpec": "healthCheckNodePort publishNotReadyAddresses",
    "StorageOSVolumeSource": "readOnly",
    "SubjectAccessReviewStatus": "denied",
    "SubjectRulesReviewStatus": "incomplete",
    "TokenReviewStatus": "authenticated",
    "VolumeMount": "readOnly",
    "VolumeMountStatus": "readOnly",
}
"""Optional numbers and booleans that Go omits if they are zero. Others, and new ones, are kept: a zero too many is reported where it
is invalid, one too few would become the default."""
STRINGS_BY_POINTER = {
    "AppArmorProfile": "localhostProfile",
    "AzureDiskVolumeSource": "cachingMode fsType kind",
    "CSIVolumeSource": "fsType",
    "ClusterTrustBundleProjection": "name signerName",
    "Container": "restartPolicy",
    "ContainerStatus": "stopSignal",
    "DeleteOptions": "propagationPolicy",
    "Endpoint": "hostname nodeName zone",
    "EndpointPort": "appProtocol name protocol",
    "EphemeralContainerCommon": "restartPolicy",
    "GRPCAction": "service",
    "HostPathVolumeSource": "type",
    "ISCSIVolumeSource": "initiatorName",
    "JobSpec": "completionMode managedBy podReplacementPolicy",
    "JobStatus": "failedIndexes",
    "LeaseSpec": "holderIdentity preferredHolder strategy",
    "Lifecycle": "stopSignal",
    "LoadBalancerIngress": "ipMode",
    "NetworkPolicyPort": "protocol",
    "PersistentVolumeClaimSpec": "storageClassName volumeAttributesClassName volumeMode",
    "PersistentVolumeClaimStatus": "currentVolumeAttributesClassName",
    "PodDNSConfigOption": "value",
    "PodDisruptionBudgetSpec": "unhealthyPodEvictionPolicy",
    "PodFailurePolicyOnExitCodesRequirement": "containerName",
    "PodResourceClaim": "resourceClaimName resourceClaimTemplateName",
    "PodResourceClaimStatus": "resourceClaimName",
    "PodSchedulingGroup": "podGroupName",
    "PodSecurityContext": "fsGroupChangePolicy seLinuxChangePolicy supplementalGroupsPolicy",
    "PodSpec": "hostnameOverride preemptionPolicy runtimeClassName",
    "PortStatus": "error",
    "Preconditions": "resourceVersion uid",
    "PriorityClass": "preemptionPolicy",
    "SeccompProfile": "localhostProfile",
    "SecurityContext": "procMount",
    "ServicePort": "appProtocol",
    "ServiceSpec": "internalTrafficPolicy ipFamilyPolicy loadBalancerClass trafficDistribution",
    "SuccessPolicyRule": "succeededIndexes",
    "TopologySpreadConstraint": "nodeAffinityPolicy nodeTaintsPolicy",
    "TypedLocalObjectReference": "apiGroup",
    "TypedObjectReference": "apiGroup namespace",
    "VolumeMount": "mountPropagation recursiveReadOnly",
    "VolumeMountStatus": "recursiveReadOnly",
    "WindowsSecurityContextOptions": "gmsaCredentialSpec gmsaCredentialSpecName runAsUserName",
}
"""Optional texts that may be empty; Go omits others if they are empty."""


def published_messages(numbers: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Fields]:
    """Return the fields of each message by number, from the published numbers and the schemas of Kubernetes."""
    named: dict[str, str] = {}
    made: dict[str, Fields] = {}

    def name_of(full: str) -> str:
        package, name = full.rsplit(".", 2)[0].rpartition(".")[2], full.rpartition(".")[2]
        if name in SPECIAL:
            return name
        if named.setdefault(name, full) != full:
            name = f"{package}/{name}"
        if name not in made:
            made[name] = {}
            made[name] = message(full)
        return name

    def message(full: str) -> Fields:
        schema = definitions.get(f"io.k8s.{full}", {})
        return {
            number: (json_name(full, field, published, schema), sort_of(full, field, published, schema))
            for number, (field, published) in sorted(numbers[full].items(), key=lambda item: int(item[0]))
        }

    def json_name(full: str, field: str, published: str, schema: Any) -> str:
        names = {name.casefold(): name for name in schema.get("properties", (field,))}
        if name := names.get(field.casefold()):  # "uID" is "uid" in JSON
            return name
        if all(inner.casefold() in names for inner, _ in numbers.get(published, {"": ("?", "")}).values()):
            return ""  # an embedded struct
        raise ValueError(f"{full}.{field} is not in the schema of its type")

    def sort_of(full: str, field: str, published: str, schema: Any) -> str:
        listed = (STRINGS_BY_POINTER if published == "string" else HELD_BY_VALUE).get(full.rpartition(".")[2], "").split()
        sort = re.sub(r"[\w.]+\.\w+", lambda found: name_of(found[0]), published).replace("map<string,", "map<")
        by_pointer = (field in listed) == (published == "string")
        kept = field in schema.get("required", ()) or by_pointer
        return f"*{sort}" if sort in ("string", "bool", "int32", "int64") and kept else sort

    roots = [(kind.group, kind.kind) for kind in kinds.ALL] + [(review.group, review.kind) for review in REVIEWS] + [*OTHER_ROOTS]
    for group, kind in roots:
        full = f"api.{group.partition('.')[0] or 'core'}.v1.{kind}"
        if full in numbers:  # kinds of CustomResourceDefinitions have no messages
            name_of(full)
    name_of("apimachinery.pkg.apis.meta.v1.DeleteOptions")
    for name, listed in [*HELD_BY_VALUE.items(), *STRINGS_BY_POINTER.items()]:
        known = {field for full, fields in made.items() if full.rpartition("/")[2] == name for field, _ in fields.values()}
        if unknown := set(listed.split()) - known:
            raise ValueError(f"{name} has no fields {', '.join(sorted(unknown))}: list others")
    return made


def messages_text(messages: dict[str, Fields]) -> str:
    """JSON with a line for each field."""
    lines = []
    for name, fields in sorted(messages.items()):
        inner = ",\n".join(f"  {json.dumps(number)}: {json.dumps(field)}" for number, field in fields.items())
        lines.append(f"{json.dumps(name)}: {{\n{inner}\n }}" if fields else f"{json.dumps(name)}: {{}}")
    return "{\n" + ",\n".join(lines) + "\n}\n"
