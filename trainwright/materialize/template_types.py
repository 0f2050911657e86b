"""What Kubernetes' Go types write of a JobSet template: which fields vanish at their zero value, which are always there.

A field that Go holds by value vanishes when it is "", 0 or false; one that it holds by pointer stays. Structs held by value
are written even when they are empty. Sources: the core/v1, batch/v1 and JobSet API types, and the defaults of the runtime CRD.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class Written:
    """How one type is written; a field that is not mentioned is written as it is."""

    plain: frozenset[str] = frozenset()
    """Fields held by value: left out at their zero value."""
    inner: dict[str, Written] = field(default_factory=dict)
    """Fields that hold a struct, or a list of structs."""
    always: tuple[str, ...] = ()
    """Structs held by value: there even when nothing was said."""
    amounts: frozenset[str] = frozenset()
    """Fields that hold a quantity, or a map of quantities."""
    defaults: dict[str, Any] = field(default_factory=dict)
    """What the schema of the runtime fills in."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


METADATA = Written(_words("name generateName namespace"))
_REFERENCE = Written(_words("name"))
_FIELD = Written(_words("apiVersion"))
_AMOUNT_OF = Written(_words("containerName"), amounts=_words("divisor"), defaults={"divisor": "0"})
_SOURCE = Written(
    inner={
        "fieldRef": _FIELD,
        "resourceFieldRef": _AMOUNT_OF,
        "configMapKeyRef": _REFERENCE,
        "secretKeyRef": _REFERENCE,
        "fileKeyRef": Written(defaults={"optional": False}),
    }
)
ENV = Written(_words("value"), {"valueFrom": _SOURCE})
_ENV_FROM = Written(_words("prefix"), {"configMapRef": _REFERENCE, "secretRef": _REFERENCE})
_PORT = Written(_words("name hostPort protocol hostIP"), defaults={"protocol": "TCP"})
RESOURCES = Written(inner={"claims": Written(_words("request"))}, amounts=_words("limits requests"))
_HANDLER = {
    "httpGet": Written(_words("path host scheme")),
    "tcpSocket": Written(_words("host")),
    "grpc": Written(defaults={"service": ""}),
}
_PROBE = Written(_words("initialDelaySeconds timeoutSeconds periodSeconds successThreshold failureThreshold"), _HANDLER)
_LIFECYCLE = Written(inner={"postStart": Written(inner=_HANDLER), "preStop": Written(inner=_HANDLER)})
_SE_LINUX = Written(_words("user role type level"))
_SECURITY = Written(inner={"seLinuxOptions": _SE_LINUX})
MOUNT = Written(_words("readOnly subPath subPathExpr"))
CONTAINER = Written(
    _words(
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
    always=("resources",),
)
_ITEMS = Written(inner={"items": Written(inner={"fieldRef": _FIELD, "resourceFieldRef": _AMOUNT_OF})})
_NAMED_ITEMS = Written(_words("name"))
_CLAIM_SPEC = Written(_words("volumeName"), {"resources": RESOURCES}, always=("resources",))
_CLAIM_TEMPLATE = Written(inner={"metadata": METADATA, "spec": _CLAIM_SPEC}, always=("metadata", "spec"))
_PROJECTED = Written(
    inner={
        "sources": Written(
            inner={
                "secret": _NAMED_ITEMS,
                "configMap": _NAMED_ITEMS,
                "downwardAPI": _ITEMS,
                "serviceAccountToken": Written(_words("audience")),
                "podCertificate": Written(_words("credentialBundlePath keyPath certificateChainPath")),
            }
        )
    }
)
_WITH_SECRET = {"secretRef": _REFERENCE}
VOLUME = Written(
    inner={
        "emptyDir": Written(_words("medium"), amounts=_words("sizeLimit")),
        "secret": Written(_words("secretName")),
        "configMap": _NAMED_ITEMS,
        "downwardAPI": _ITEMS,
        "projected": _PROJECTED,
        "persistentVolumeClaim": Written(_words("readOnly")),
        "ephemeral": Written(inner={"volumeClaimTemplate": _CLAIM_TEMPLATE}),
        "nfs": Written(_words("readOnly")),
        "csi": Written(inner={"nodePublishSecretRef": _REFERENCE}),
        "image": Written(_words("reference pullPolicy")),
        "awsElasticBlockStore": Written(_words("fsType partition readOnly")),
        "gcePersistentDisk": Written(_words("fsType partition readOnly")),
        "azureDisk": Written(defaults={"fsType": "ext4", "readOnly": False}),
        "azureFile": Written(_words("readOnly")),
        "cephfs": Written(_words("path user secretFile readOnly"), _WITH_SECRET),
        "cinder": Written(_words("fsType readOnly"), _WITH_SECRET),
        "fc": Written(_words("fsType readOnly")),
        "flexVolume": Written(_words("fsType readOnly"), _WITH_SECRET),
        "flocker": Written(_words("datasetName datasetUUID")),
        "gitRepo": Written(_words("revision directory")),
        "glusterfs": Written(_words("readOnly")),
        "iscsi": Written(
            _words("iscsiInterface fsType readOnly chapAuthDiscovery chapAuthSession"),
            _WITH_SECRET,
            defaults={"iscsiInterface": "default"},
        ),
        "photonPersistentDisk": Written(_words("fsType")),
        "portworxVolume": Written(_words("fsType readOnly")),
        "quobyte": Written(_words("readOnly user group tenant")),
        "rbd": Written(
            _words("fsType pool user keyring readOnly"),
            _WITH_SECRET,
            defaults={"pool": "rbd", "user": "admin", "keyring": "/etc/ceph/keyring"},
        ),
        "scaleIO": Written(
            _words("sslEnabled protectionDomain storagePool storageMode volumeName fsType readOnly"),
            _WITH_SECRET,
            defaults={"storageMode": "ThinProvisioned", "fsType": "xfs"},
        ),
        "storageos": Written(_words("volumeName volumeNamespace fsType readOnly"), _WITH_SECRET),
        "vsphereVolume": Written(_words("fsType storagePolicyName storagePolicyID")),
    }
)
_TOLERATION = Written(_words("key operator value effect"))
POD_SPEC = Written(
    _words(
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
        "dnsConfig": Written(inner={"options": _REFERENCE}),
        "resources": RESOURCES,
    },
    amounts=_words("overhead"),
)
_FAILURE_RULE = Written(inner={"onPodConditions": Written(_words("status"))})


def _replicated_job(pod_spec: Written) -> Written:
    pods = Written(inner={"metadata": METADATA, "spec": pod_spec}, always=("metadata", "spec"))
    rules = Written(inner={"rules": _FAILURE_RULE})
    job_spec = Written(inner={"template": pods, "podFailurePolicy": rules}, always=("template",))
    job = Written(inner={"metadata": METADATA, "spec": job_spec}, always=("metadata", "spec"))
    return Written(_words("groupName replicas"), {"template": job}, always=("template",))


_CLAIM = Written(_words("apiVersion kind"), {"metadata": METADATA, "spec": _CLAIM_SPEC}, always=("metadata", "spec", "status"))
JOBSET_SPEC = Written(
    inner={
        "replicatedJobs": _replicated_job(POD_SPEC),
        "network": Written(_words("subdomain")),
        "failurePolicy": Written(_words("maxRestarts restartStrategy")),
        "coordinator": Written(_words("jobIndex podIndex")),
        "volumeClaimPolicies": Written(inner={"templates": _CLAIM}),
    }
)
"""The template of a runtime."""
_POD_PATCH = replace(POD_SPEC, plain=POD_SPEC.plain - {"serviceAccountName"})
PATCH_SPEC = Written(inner={"replicatedJobs": _replicated_job(_POD_PATCH)})
"""The part of a template that a patch holds; there the service account is held by pointer, so that "" takes it away."""
_TEMPLATE = Written(inner={"metadata": METADATA, "spec": JOBSET_SPEC}, always=("metadata",))
RUNTIME = Written(inner={"metadata": METADATA, "spec": Written(inner={"template": _TEMPLATE})})
MAPS = _words(
    "labels annotations nodeSelector matchLabels volumeAttributes options limits requests overhead userAnnotations capacity"
)
"""Maps of free keys: left out when they are empty, as empty lists are."""
