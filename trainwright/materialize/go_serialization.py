"""Serializes values like Kubernetes' Go types: zero values are omitted, structs are present, quantities are canonical.

A field held by value with `omitempty` is omitted if it is "", 0 or false; one held by pointer is kept. Structs held by value
are present even if empty. Sources: the core/v1, batch/v1 and JobSet API types, and the defaults of the runtime CRD.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from trainwright.api.errors import Problem
from trainwright.api.objects import Obj
from trainwright.api.quantities import canonical


def serialize(kind: GoType, value: Obj, *, complete: bool = True) -> Obj:
    """Return a new object as the Go type `kind` would serialize `value`.

    `complete` adds the fields that are always present and the schema's defaults; without it the value is a patch.
    """
    written: Obj = {}
    for key, item in value.items():
        if item is None or (not item and (key in kind.omit_empty or key in MAP_FIELDS or isinstance(item, list))):
            continue
        nested = kind.nested.get(key)
        if key in kind.quantities:
            written[key] = {n: canonical(a) for n, a in item.items()} if isinstance(item, dict) else canonical(item)
        elif nested is None:
            copied = _copied(item)
            if copied or not (key in MAP_FIELDS or isinstance(copied, list)):
                written[key] = copied
        elif isinstance(item, list):
            written[key] = [serialize(nested, element, complete=complete) for element in item]
        else:
            written[key] = serialize(nested, item, complete=complete)
    if complete:
        for key, default in kind.defaults.items():
            written.setdefault(key, default)
        for key in kind.always_present:
            if key not in written:
                written[key] = serialize(kind.nested[key], {}) if key in kind.nested else {}
    return written


def quantity_problems(kind: GoType, value: Obj, path: str) -> Iterator[Problem]:
    """Yield invalid quantities. `serialize` requires that there are none."""
    for key, item in value.items():
        where, nested = f"{path}.{key}", kind.nested.get(key)
        if key in kind.quantities:
            for name, amount in item.items() if isinstance(item, dict) else [("", item)]:
                if amount is not None and (reason := quantity_error(amount)):
                    yield Problem(f"{where}[{name}]" if name else where, f"Invalid value: {reason}")
        elif nested is not None and isinstance(item, dict):
            yield from quantity_problems(nested, item, where)
        elif nested is not None:
            for index, element in enumerate(item or []):
                yield from quantity_problems(nested, element, f"{where}[{index}]")


def quantity_error(amount: str | int | float) -> str:
    """Return why an amount is not a valid quantity, or an empty string."""
    try:
        canonical(amount)
    except ValueError as error:
        return str(error)
    return ""


def _copied(value: Any) -> Any:
    """Return a copy of an untyped value without nulls and empty lists and maps."""
    if isinstance(value, dict):
        copied = {key: _copied(item) for key, item in value.items() if item is not None}
        return {key: item for key, item in copied.items() if item or not (key in MAP_FIELDS or isinstance(item, list))}
    if isinstance(value, list):
        return [_copied(item) for item in value]
    return value


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
