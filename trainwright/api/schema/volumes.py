"""Schemas of a Pod's volumes, with one field for each source, and of claims."""

from __future__ import annotations

from trainwright.api.schema.references import (
    FIELD_REF,
    KEY_TO_PATH,
    LABEL_SELECTOR,
    NAME_REF,
    RESOURCE_FIELD_REF,
    TEMPLATE_METADATA,
)
from trainwright.api.schema.types import (
    BOOLEAN,
    INT,
    LONG,
    QUANTITIES,
    QUANTITY,
    STRING,
    STRING_MAP,
    STRINGS,
    Boolean,
    ListOf,
    String,
    Struct,
)

CEPHFS = Struct(
    {"monitors": STRINGS, "path": STRING, "readOnly": BOOLEAN, "secretFile": STRING, "secretRef": NAME_REF, "user": STRING},
    ("monitors",),
)
DOWNWARD_FILE = Struct({"fieldRef": FIELD_REF, "mode": INT, "path": STRING, "resourceFieldRef": RESOURCE_FIELD_REF}, ("path",))
CLAIM_SPEC = Struct(
    {
        "accessModes": STRINGS,
        "dataSource": Struct({"apiGroup": STRING, "kind": STRING, "name": STRING}, ("kind", "name")),
        "dataSourceRef": Struct({"apiGroup": STRING, "kind": STRING, "name": STRING, "namespace": STRING}, ("kind", "name")),
        "resources": Struct({"limits": QUANTITIES, "requests": QUANTITIES}),
        "selector": LABEL_SELECTOR,
        "storageClassName": STRING,
        "volumeAttributesClassName": STRING,
        "volumeMode": STRING,
        "volumeName": STRING,
    },
    type_name="PersistentVolumeClaimSpec",
)
ISCSI = Struct(
    {
        "chapAuthDiscovery": BOOLEAN,
        "chapAuthSession": BOOLEAN,
        "fsType": STRING,
        "initiatorName": STRING,
        "iqn": STRING,
        "iscsiInterface": String(default="default"),
        "lun": INT,
        "portals": STRINGS,
        "readOnly": BOOLEAN,
        "secretRef": NAME_REF,
        "targetPortal": STRING,
    },
    ("iqn", "lun", "targetPortal"),
)
PROJECTED_KEYS = Struct({"items": ListOf(KEY_TO_PATH), "name": String(default=""), "optional": BOOLEAN})
PROJECTED_SOURCE = Struct(
    {
        "clusterTrustBundle": Struct(
            {"labelSelector": LABEL_SELECTOR, "name": STRING, "optional": BOOLEAN, "path": STRING, "signerName": STRING},
            ("path",),
        ),
        "configMap": PROJECTED_KEYS,
        "downwardAPI": Struct({"items": ListOf(DOWNWARD_FILE)}),
        "podCertificate": Struct(
            {
                "certificateChainPath": STRING,
                "credentialBundlePath": STRING,
                "keyPath": STRING,
                "keyType": STRING,
                "maxExpirationSeconds": INT,
                "signerName": STRING,
                "userAnnotations": STRING_MAP,
            },
            ("keyType", "signerName"),
        ),
        "secret": PROJECTED_KEYS,
        "serviceAccountToken": Struct({"audience": STRING, "expirationSeconds": LONG, "path": STRING}, ("path",)),
    }
)
RBD = Struct(
    {
        "fsType": STRING,
        "image": STRING,
        "keyring": String(default="/etc/ceph/keyring"),
        "monitors": STRINGS,
        "pool": String(default="rbd"),
        "readOnly": BOOLEAN,
        "secretRef": NAME_REF,
        "user": String(default="admin"),
    },
    ("image", "monitors"),
)
SCALE_IO = Struct(
    {
        "fsType": String(default="xfs"),
        "gateway": STRING,
        "protectionDomain": STRING,
        "readOnly": BOOLEAN,
        "secretRef": NAME_REF,
        "sslEnabled": BOOLEAN,
        "storageMode": String(default="ThinProvisioned"),
        "storagePool": STRING,
        "system": STRING,
        "volumeName": STRING,
    },
    ("gateway", "secretRef", "system"),
)
VOLUME = Struct(
    {
        "awsElasticBlockStore": Struct(
            {"fsType": STRING, "partition": INT, "readOnly": BOOLEAN, "volumeID": STRING}, ("volumeID",)
        ),
        "azureDisk": Struct(
            {
                "cachingMode": STRING,
                "diskName": STRING,
                "diskURI": STRING,
                "fsType": String(default="ext4"),
                "kind": STRING,
                "readOnly": Boolean(default=False),
            },
            ("diskName", "diskURI"),
        ),
        "azureFile": Struct({"readOnly": BOOLEAN, "secretName": STRING, "shareName": STRING}, ("secretName", "shareName")),
        "cephfs": CEPHFS,
        "cinder": Struct({"fsType": STRING, "readOnly": BOOLEAN, "secretRef": NAME_REF, "volumeID": STRING}, ("volumeID",)),
        "configMap": Struct({"defaultMode": INT, "items": ListOf(KEY_TO_PATH), "name": String(default=""), "optional": BOOLEAN}),
        "csi": Struct(
            {
                "driver": STRING,
                "fsType": STRING,
                "nodePublishSecretRef": NAME_REF,
                "readOnly": BOOLEAN,
                "volumeAttributes": STRING_MAP,
            },
            ("driver",),
        ),
        "downwardAPI": Struct({"defaultMode": INT, "items": ListOf(DOWNWARD_FILE)}),
        "emptyDir": Struct({"medium": STRING, "sizeLimit": QUANTITY}),
        "ephemeral": Struct({"volumeClaimTemplate": Struct({"metadata": TEMPLATE_METADATA, "spec": CLAIM_SPEC}, ("spec",))}),
        "fc": Struct({"fsType": STRING, "lun": INT, "readOnly": BOOLEAN, "targetWWNs": STRINGS, "wwids": STRINGS}),
        "flexVolume": Struct(
            {"driver": STRING, "fsType": STRING, "options": STRING_MAP, "readOnly": BOOLEAN, "secretRef": NAME_REF}, ("driver",)
        ),
        "flocker": Struct({"datasetName": STRING, "datasetUUID": STRING}),
        "gcePersistentDisk": Struct({"fsType": STRING, "partition": INT, "pdName": STRING, "readOnly": BOOLEAN}, ("pdName",)),
        "gitRepo": Struct({"directory": STRING, "repository": STRING, "revision": STRING}, ("repository",)),
        "glusterfs": Struct({"endpoints": STRING, "path": STRING, "readOnly": BOOLEAN}, ("endpoints", "path")),
        "hostPath": Struct({"path": STRING, "type": STRING}, ("path",)),
        "image": Struct({"pullPolicy": STRING, "reference": STRING}),
        "iscsi": ISCSI,
        "name": STRING,
        "nfs": Struct({"path": STRING, "readOnly": BOOLEAN, "server": STRING}, ("path", "server")),
        "persistentVolumeClaim": Struct({"claimName": STRING, "readOnly": BOOLEAN}, ("claimName",)),
        "photonPersistentDisk": Struct({"fsType": STRING, "pdID": STRING}, ("pdID",)),
        "portworxVolume": Struct({"fsType": STRING, "readOnly": BOOLEAN, "volumeID": STRING}, ("volumeID",)),
        "projected": Struct({"defaultMode": INT, "sources": ListOf(PROJECTED_SOURCE)}),
        "quobyte": Struct(
            {"group": STRING, "readOnly": BOOLEAN, "registry": STRING, "tenant": STRING, "user": STRING, "volume": STRING},
            ("registry", "volume"),
        ),
        "rbd": RBD,
        "scaleIO": SCALE_IO,
        "secret": Struct({"defaultMode": INT, "items": ListOf(KEY_TO_PATH), "optional": BOOLEAN, "secretName": STRING}),
        "storageos": Struct(
            {"fsType": STRING, "readOnly": BOOLEAN, "secretRef": NAME_REF, "volumeName": STRING, "volumeNamespace": STRING}
        ),
        "vsphereVolume": Struct(
            {"fsType": STRING, "storagePolicyID": STRING, "storagePolicyName": STRING, "volumePath": STRING}, ("volumePath",)
        ),
    },
    ("name",),
    type_name="Volume",
)
CLAIM_TEMPLATE = Struct(
    {
        "apiVersion": STRING,
        "kind": STRING,
        "metadata": TEMPLATE_METADATA,
        "spec": CLAIM_SPEC,
        "status": Struct(
            {
                "accessModes": STRINGS,
                "allocatedResourceStatuses": STRING_MAP,
                "allocatedResources": QUANTITIES,
                "capacity": QUANTITIES,
                "conditions": ListOf(
                    Struct(
                        {
                            "lastProbeTime": String(moment=True),
                            "lastTransitionTime": String(moment=True),
                            "message": STRING,
                            "reason": STRING,
                            "status": STRING,
                            "type": STRING,
                        },
                        ("status", "type"),
                    ),
                    keys=("type",),
                ),
                "currentVolumeAttributesClassName": STRING,
                "modifyVolumeStatus": Struct({"status": STRING, "targetVolumeAttributesClassName": STRING}, ("status",)),
                "phase": STRING,
            }
        ),
    },
    type_name="PersistentVolumeClaim",
)
