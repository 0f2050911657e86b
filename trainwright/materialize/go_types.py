"""How Kubernetes' Go types serialize a JobSet template: which fields are omitted when empty, which are always present.

A field held by value with `omitempty` is omitted if it is "", 0 or false; one held by pointer is kept. Structs held by value
are present even if empty. Sources: the core/v1, batch/v1 and JobSet API types, and the defaults of the runtime CRD.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class GoType:
    """The serialization of one type. Fields that are not mentioned are copied."""

    omit_empty: frozenset[str] = frozenset()
    """Fields held by value: omitted if zero."""
    nested: dict[str, GoType] = field(default_factory=dict)
    """Fields with a struct, or a list of structs."""
    always_present: tuple[str, ...] = ()
    """Structs held by value: present even if not set."""
    quantities: frozenset[str] = frozenset()
    """Fields with a quantity, or a map of quantities."""
    defaults: dict[str, Any] = field(default_factory=dict)
    """Defaults of the runtime CRD's schema."""


def _fields(text: str) -> frozenset[str]:
    return frozenset(text.split())


METADATA = GoType(_fields("name generateName namespace"))
_REFERENCE = GoType(_fields("name"))
_FIELD = GoType(_fields("apiVersion"))
_AMOUNT_OF = GoType(_fields("containerName"), quantities=_fields("divisor"), defaults={"divisor": "0"})
_SOURCE = GoType(
    nested={
        "fieldRef": _FIELD,
        "resourceFieldRef": _AMOUNT_OF,
        "configMapKeyRef": _REFERENCE,
        "secretKeyRef": _REFERENCE,
        "fileKeyRef": GoType(defaults={"optional": False}),
    }
)
ENV = GoType(_fields("value"), {"valueFrom": _SOURCE})
_ENV_FROM = GoType(_fields("prefix"), {"configMapRef": _REFERENCE, "secretRef": _REFERENCE})
_PORT = GoType(_fields("name hostPort protocol hostIP"), defaults={"protocol": "TCP"})
RESOURCES = GoType(nested={"claims": GoType(_fields("request"))}, quantities=_fields("limits requests"))
_HANDLER = {
    "httpGet": GoType(_fields("path host scheme")),
    "tcpSocket": GoType(_fields("host")),
    "grpc": GoType(defaults={"service": ""}),
}
_PROBE = GoType(_fields("initialDelaySeconds timeoutSeconds periodSeconds successThreshold failureThreshold"), _HANDLER)
_LIFECYCLE = GoType(nested={"postStart": GoType(nested=_HANDLER), "preStop": GoType(nested=_HANDLER)})
_SE_LINUX = GoType(_fields("user role type level"))
_SECURITY = GoType(nested={"seLinuxOptions": _SE_LINUX})
MOUNT = GoType(_fields("readOnly subPath subPathExpr"))
CONTAINER = GoType(
    _fields(
        "image workingDir terminationMessagePath terminationMessagePolicy imagePullPolicy stdin stdinOnce tty targetContainerName"
    ),
    {
        "env": ENV,
        "envFrom": _ENV_FROM,
        "ports": _PORT,
        "resources": RESOURCES,
        "volumeMounts": MOUNT,
        "livenessProbe": _PROBE,
        "readinessProbe": _PROBE,
        "startupProbe": _PROBE,
        "lifecycle": _LIFECYCLE,
        "securityContext": _SECURITY,
    },
    always_present=("resources",),
)
_ITEMS = GoType(nested={"items": GoType(nested={"fieldRef": _FIELD, "resourceFieldRef": _AMOUNT_OF})})
_NAMED_ITEMS = GoType(_fields("name"))
_CLAIM_SPEC = GoType(_fields("volumeName"), {"resources": RESOURCES}, always_present=("resources",))
_CLAIM_TEMPLATE = GoType(nested={"metadata": METADATA, "spec": _CLAIM_SPEC}, always_present=("metadata", "spec"))
_PROJECTED = GoType(
    nested={
        "sources": GoType(
            nested={
                "secret": _NAMED_ITEMS,
                "configMap": _NAMED_ITEMS,
                "downwardAPI": _ITEMS,
                "serviceAccountToken": GoType(_fields("audience")),
                "podCertificate": GoType(_fields("credentialBundlePath keyPath certificateChainPath")),
            }
        )
    }
)
_WITH_SECRET = {"secretRef": _REFERENCE}
VOLUME = GoType(
    nested={
        "emptyDir": GoType(_fields("medium"), quantities=_fields("sizeLimit")),
        "secret": GoType(_fields("secretName")),
        "configMap": _NAMED_ITEMS,
        "downwardAPI": _ITEMS,
        "projected": _PROJECTED,
        "persistentVolumeClaim": GoType(_fields("readOnly")),
        "ephemeral": GoType(nested={"volumeClaimTemplate": _CLAIM_TEMPLATE}),
        "nfs": GoType(_fields("readOnly")),
        "csi": GoType(nested={"nodePublishSecretRef": _REFERENCE}),
        "image": GoType(_fields("reference pullPolicy")),
        "awsElasticBlockStore": GoType(_fields("fsType partition readOnly")),
        "gcePersistentDisk": GoType(_fields("fsType partition readOnly")),
        "azureDisk": GoType(defaults={"fsType": "ext4", "readOnly": False}),
        "azureFile": GoType(_fields("readOnly")),
        "cephfs": GoType(_fields("path user secretFile readOnly"), _WITH_SECRET),
        "cinder": GoType(_fields("fsType readOnly"), _WITH_SECRET),
        "fc": GoType(_fields("fsType readOnly")),
        "flexVolume": GoType(_fields("fsType readOnly"), _WITH_SECRET),
        "flocker": GoType(_fields("datasetName datasetUUID")),
        "gitRepo": GoType(_fields("revision directory")),
        "glusterfs": GoType(_fields("readOnly")),
        "iscsi": GoType(
            _fields("iscsiInterface fsType readOnly chapAuthDiscovery chapAuthSession"),
            _WITH_SECRET,
            defaults={"iscsiInterface": "default"},
        ),
        "photonPersistentDisk": GoType(_fields("fsType")),
        "portworxVolume": GoType(_fields("fsType readOnly")),
        "quobyte": GoType(_fields("readOnly user group tenant")),
        "rbd": GoType(
            _fields("fsType pool user keyring readOnly"),
            _WITH_SECRET,
            defaults={"pool": "rbd", "user": "admin", "keyring": "/etc/ceph/keyring"},
        ),
        "scaleIO": GoType(
            _fields("sslEnabled protectionDomain storagePool storageMode volumeName fsType readOnly"),
            _WITH_SECRET,
            defaults={"storageMode": "ThinProvisioned", "fsType": "xfs"},
        ),
        "storageos": GoType(_fields("volumeName volumeNamespace fsType readOnly"), _WITH_SECRET),
        "vsphereVolume": GoType(_fields("fsType storagePolicyName storagePolicyID")),
    }
)
_TOLERATION = GoType(_fields("key operator value effect"))
POD_SPEC = GoType(
    _fields(
        "restartPolicy dnsPolicy serviceAccountName serviceAccount nodeName hostNetwork hostPID hostIPC hostname subdomain "
        "schedulerName priorityClassName"
    ),
    {
        "containers": CONTAINER,
        "initContainers": CONTAINER,
        "ephemeralContainers": CONTAINER,
        "volumes": VOLUME,
        "imagePullSecrets": _REFERENCE,
        "tolerations": _TOLERATION,
        "securityContext": _SECURITY,
        "dnsConfig": GoType(nested={"options": _REFERENCE}),
        "resources": RESOURCES,
    },
    quantities=_fields("overhead"),
)
_FAILURE_RULE = GoType(nested={"onPodConditions": GoType(_fields("status"))})


def _replicated_job(pod_spec: GoType) -> GoType:
    pods = GoType(nested={"metadata": METADATA, "spec": pod_spec}, always_present=("metadata", "spec"))
    rules = GoType(nested={"rules": _FAILURE_RULE})
    job_spec = GoType(nested={"template": pods, "podFailurePolicy": rules}, always_present=("template",))
    job = GoType(nested={"metadata": METADATA, "spec": job_spec}, always_present=("metadata", "spec"))
    return GoType(_fields("groupName replicas"), {"template": job}, always_present=("template",))


_CLAIM = GoType(
    _fields("apiVersion kind"), {"metadata": METADATA, "spec": _CLAIM_SPEC}, always_present=("metadata", "spec", "status")
)
JOBSET_SPEC = GoType(
    nested={
        "replicatedJobs": _replicated_job(POD_SPEC),
        "network": GoType(_fields("subdomain")),
        "failurePolicy": GoType(_fields("maxRestarts restartStrategy")),
        "coordinator": GoType(_fields("jobIndex podIndex")),
        "volumeClaimPolicies": GoType(nested={"templates": _CLAIM}),
    }
)
"""The template of a runtime."""
_POD_PATCH = replace(POD_SPEC, omit_empty=POD_SPEC.omit_empty - {"serviceAccountName"})
PATCH_SPEC = GoType(nested={"replicatedJobs": _replicated_job(_POD_PATCH)})
"""The template in a patch. There the service account is held by pointer, so that "" removes it."""
_TEMPLATE = GoType(nested={"metadata": METADATA, "spec": JOBSET_SPEC}, always_present=("metadata",))
RUNTIME = GoType(nested={"metadata": METADATA, "spec": GoType(nested={"template": _TEMPLATE})})
MAP_FIELDS = _fields(
    "labels annotations nodeSelector matchLabels volumeAttributes options limits requests overhead userAnnotations capacity"
)
"""Maps with arbitrary keys: omitted if empty, like lists."""
