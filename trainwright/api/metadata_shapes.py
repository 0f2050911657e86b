"""Shape of an object's own metadata, which every kind has and the server reads itself."""

from __future__ import annotations

from trainwright.api.shapes import ANYTHING, FLAG, LONG, TEXT, TEXT_MAP, TEXTS, Record, Sequence, Text

_OWNER = Record(
    {"apiVersion": TEXT, "blockOwnerDeletion": FLAG, "controller": FLAG, "kind": TEXT, "name": TEXT, "uid": TEXT},
    type_name="OwnerReference",
)
_MOMENT = Text(moment=True)
METADATA = Record(
    {
        "annotations": TEXT_MAP,
        "creationTimestamp": _MOMENT,
        "deletionGracePeriodSeconds": LONG,
        "deletionTimestamp": _MOMENT,
        "finalizers": TEXTS,
        "generateName": TEXT,
        "generation": LONG,
        "labels": TEXT_MAP,
        "managedFields": ANYTHING,
        "name": TEXT,
        "namespace": TEXT,
        "ownerReferences": Sequence(_OWNER),
        "resourceVersion": TEXT,
        "selfLink": TEXT,
        "uid": TEXT,
    },
    type_name="ObjectMeta",
)
