"""Schema of ObjectMeta, which the server decodes for every kind."""

from __future__ import annotations

from trainwright.api.schema.types import ANY_VALUE, BOOLEAN, LONG, STRING, STRING_MAP, STRINGS, ListOf, String, Struct

_OWNER = Struct(
    {"apiVersion": STRING, "blockOwnerDeletion": BOOLEAN, "controller": BOOLEAN, "kind": STRING, "name": STRING, "uid": STRING},
    type_name="OwnerReference",
)
_MOMENT = String(moment=True)
METADATA = Struct(
    {
        "annotations": STRING_MAP,
        "creationTimestamp": _MOMENT,
        "deletionGracePeriodSeconds": LONG,
        "deletionTimestamp": _MOMENT,
        "finalizers": STRINGS,
        "generateName": STRING,
        "generation": LONG,
        "labels": STRING_MAP,
        "managedFields": ANY_VALUE,
        "name": STRING,
        "namespace": STRING,
        "ownerReferences": ListOf(_OWNER),
        "resourceVersion": STRING,
        "selfLink": STRING,
        "uid": STRING,
    },
    type_name="ObjectMeta",
)
