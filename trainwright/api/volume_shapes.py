"""Shapes of a Pod's volumes, one field for each kind of volume, and of claims."""

from __future__ import annotations

from trainwright.api.reference_shapes import (
    FIELD_REF,
    KEY_TO_PATH,
    LABEL_SELECTOR,
    NAME_REF,
    RESOURCE_FIELD_REF,
    TEMPLATE_METADATA,
)
from trainwright.api.shapes import FLAG, INT, LONG, QUANTITIES, QUANTITY, TEXT, TEXT_MAP, TEXTS, Flag, Record, Sequence, Text

CEPHFS = Record(
    {"monitors": TEXTS, "path": TEXT, "readOnly": FLAG, "secretFile": TEXT, "secretRef": NAME_REF, "user": TEXT}, ("monitors",)
)
DOWNWARD_FILE = Record({"fieldRef": FIELD_REF, "mode": INT, "path": TEXT, "resourceFieldRef": RESOURCE_FIELD_REF}, ("path",))
CLAIM_SPEC = Record(
    {
        "accessModes": TEXTS,
        "dataSource": Record({"apiGroup": TEXT, "kind": TEXT, "name": TEXT}, ("kind", "name")),
        "dataSourceRef": Record({"apiGroup": TEXT, "kind": TEXT, "name": TEXT, "namespace": TEXT}, ("kind", "name")),
        "resources": Record({"limits": QUANTITIES, "requests": QUANTITIES}),
        "selector": LABEL_SELECTOR,
        "storageClassName": TEXT,
        "volumeAttributesClassName": TEXT,
        "volumeMode": TEXT,
        "volumeName": TEXT,
    },
    type_name="PersistentVolumeClaimSpec",
)
ISCSI = Record(
    {
        "chapAuthDiscovery": FLAG,
        "chapAuthSession": FLAG,
        "fsType": TEXT,
        "initiatorName": TEXT,
        "iqn": TEXT,
        "iscsiInterface": Text(default="default"),
        "lun": INT,
        "portals": TEXTS,
        "readOnly": FLAG,
        "secretRef": NAME_REF,
        "targetPortal": TEXT,
    },
    ("iqn", "lun", "targetPortal"),
)
PROJECTED_KEYS = Record({"items": Sequence(KEY_TO_PATH), "name": Text(default=""), "optional": FLAG})
PROJECTED_SOURCE = Record(
    {
        "clusterTrustBundle": Record(
            {"labelSelector": LABEL_SELECTOR, "name": TEXT, "optional": FLAG, "path": TEXT, "signerName": TEXT}, ("path",)
        ),
        "configMap": PROJECTED_KEYS,
        "downwardAPI": Record({"items": Sequence(DOWNWARD_FILE)}),
        "podCertificate": Record(
            {
                "certificateChainPath": TEXT,
                "credentialBundlePath": TEXT,
                "keyPath": TEXT,
                "keyType": TEXT,
                "maxExpirationSeconds": INT,
                "signerName": TEXT,
                "userAnnotations": TEXT_MAP,
            },
            ("keyType", "signerName"),
        ),
        "secret": PROJECTED_KEYS,
        "serviceAccountToken": Record({"audience": TEXT, "expirationSeconds": LONG, "path": TEXT}, ("path",)),
    }
)
RBD = Record(
    {
        "fsType": TEXT,
        "image": TEXT,
        "keyring": Text(default="/etc/ceph/keyring"),
        "monitors": TEXTS,
        "pool": Text(default="rbd"),
        "readOnly": FLAG,
        "secretRef": NAME_REF,
        "user": Text(default="admin"),
    },
    ("image", "monitors"),
)
SCALE_IO = Record(
    {
        "fsType": Text(default="xfs"),
        "gateway": TEXT,
        "protectionDomain": TEXT,
        "readOnly": FLAG,
        "secretRef": NAME_REF,
        "sslEnabled": FLAG,
        "storageMode": Text(default="ThinProvisioned"),
        "storagePool": TEXT,
        "system": TEXT,
        "volumeName": TEXT,
    },
    ("gateway", "secretRef", "system"),
)
VOLUME = Record(
    {
        "awsElasticBlockStore": Record({"fsType": TEXT, "partition": INT, "readOnly": FLAG, "volumeID": TEXT}, ("volumeID",)),
        "azureDisk": Record(
            {
                "cachingMode": TEXT,
                "diskName": TEXT,
                "diskURI": TEXT,
                "fsType": Text(default="ext4"),
                "kind": TEXT,
                "readOnly": Flag(default=False),
            },
            ("diskName", "diskURI"),
        ),
        "azureFile": Record({"readOnly": FLAG, "secretName": TEXT, "shareName": TEXT}, ("secretName", "shareName")),
        "cephfs": CEPHFS,
        "cinder": Record({"fsType": TEXT, "readOnly": FLAG, "secretRef": NAME_REF, "volumeID": TEXT}, ("volumeID",)),
        "configMap": Record({"defaultMode": INT, "items": Sequence(KEY_TO_PATH), "name": Text(default=""), "optional": FLAG}),
        "csi": Record(
            {"driver": TEXT, "fsType": TEXT, "nodePublishSecretRef": NAME_REF, "readOnly": FLAG, "volumeAttributes": TEXT_MAP},
            ("driver",),
        ),
        "downwardAPI": Record({"defaultMode": INT, "items": Sequence(DOWNWARD_FILE)}),
        "emptyDir": Record({"medium": TEXT, "sizeLimit": QUANTITY}),
        "ephemeral": Record({"volumeClaimTemplate": Record({"metadata": TEMPLATE_METADATA, "spec": CLAIM_SPEC}, ("spec",))}),
        "fc": Record({"fsType": TEXT, "lun": INT, "readOnly": FLAG, "targetWWNs": TEXTS, "wwids": TEXTS}),
        "flexVolume": Record(
            {"driver": TEXT, "fsType": TEXT, "options": TEXT_MAP, "readOnly": FLAG, "secretRef": NAME_REF}, ("driver",)
        ),
        "flocker": Record({"datasetName": TEXT, "datasetUUID": TEXT}),
        "gcePersistentDisk": Record({"fsType": TEXT, "partition": INT, "pdName": TEXT, "readOnly": FLAG}, ("pdName",)),
        "gitRepo": Record({"directory": TEXT, "repository": TEXT, "revision": TEXT}, ("repository",)),
        "glusterfs": Record({"endpoints": TEXT, "path": TEXT, "readOnly": FLAG}, ("endpoints", "path")),
        "hostPath": Record({"path": TEXT, "type": TEXT}, ("path",)),
        "image": Record({"pullPolicy": TEXT, "reference": TEXT}),
        "iscsi": ISCSI,
        "name": TEXT,
        "nfs": Record({"path": TEXT, "readOnly": FLAG, "server": TEXT}, ("path", "server")),
        "persistentVolumeClaim": Record({"claimName": TEXT, "readOnly": FLAG}, ("claimName",)),
        "photonPersistentDisk": Record({"fsType": TEXT, "pdID": TEXT}, ("pdID",)),
        "portworxVolume": Record({"fsType": TEXT, "readOnly": FLAG, "volumeID": TEXT}, ("volumeID",)),
        "projected": Record({"defaultMode": INT, "sources": Sequence(PROJECTED_SOURCE)}),
        "quobyte": Record(
            {"group": TEXT, "readOnly": FLAG, "registry": TEXT, "tenant": TEXT, "user": TEXT, "volume": TEXT},
            ("registry", "volume"),
        ),
        "rbd": RBD,
        "scaleIO": SCALE_IO,
        "secret": Record({"defaultMode": INT, "items": Sequence(KEY_TO_PATH), "optional": FLAG, "secretName": TEXT}),
        "storageos": Record(
            {"fsType": TEXT, "readOnly": FLAG, "secretRef": NAME_REF, "volumeName": TEXT, "volumeNamespace": TEXT}
        ),
        "vsphereVolume": Record(
            {"fsType": TEXT, "storagePolicyID": TEXT, "storagePolicyName": TEXT, "volumePath": TEXT}, ("volumePath",)
        ),
    },
    ("name",),
    type_name="Volume",
)
CLAIM_TEMPLATE = Record(
    {
        "apiVersion": TEXT,
        "kind": TEXT,
        "metadata": TEMPLATE_METADATA,
        "spec": CLAIM_SPEC,
        "status": Record(
            {
                "accessModes": TEXTS,
                "allocatedResourceStatuses": TEXT_MAP,
                "allocatedResources": QUANTITIES,
                "capacity": QUANTITIES,
                "conditions": Sequence(
                    Record(
                        {
                            "lastProbeTime": Text(moment=True),
                            "lastTransitionTime": Text(moment=True),
                            "message": TEXT,
                            "reason": TEXT,
                            "status": TEXT,
                            "type": TEXT,
                        },
                        ("status", "type"),
                    ),
                    keys=("type",),
                ),
                "currentVolumeAttributesClassName": TEXT,
                "modifyVolumeStatus": Record({"status": TEXT, "targetVolumeAttributesClassName": TEXT}, ("status",)),
                "phase": TEXT,
            }
        ),
    },
    type_name="PersistentVolumeClaim",
)
