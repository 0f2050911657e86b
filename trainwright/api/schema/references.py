"""Schemas of references that many types share: keys of ConfigMaps, fields, selectors, a template's metadata."""

from __future__ import annotations

from trainwright.api.schema.types import BOOLEAN, INT, QUANTITY, STRING, STRING_MAP, STRINGS, Boolean, ListOf, String, Struct

TEMPLATE_METADATA = Struct(
    {"annotations": STRING_MAP, "finalizers": STRINGS, "labels": STRING_MAP, "name": STRING, "namespace": STRING},
    type_name="ObjectMeta",
)
REQUIREMENT = Struct({"key": STRING, "operator": STRING, "values": STRINGS}, ("key", "operator"))
LABEL_SELECTOR = Struct(
    {"matchExpressions": ListOf(REQUIREMENT), "matchLabels": STRING_MAP}, type_name="LabelSelector", atomic=True
)
KEY_REF = Struct({"key": STRING, "name": String(default=""), "optional": BOOLEAN}, ("key",), type_name="KeySelector", atomic=True)
FIELD_REF = Struct({"apiVersion": STRING, "fieldPath": STRING}, ("fieldPath",), type_name="ObjectFieldSelector", atomic=True)
FILE_KEY_REF = Struct(
    {"key": STRING, "optional": Boolean(default=False), "path": STRING, "volumeName": STRING},
    ("key", "path", "volumeName"),
    atomic=True,
)
RESOURCE_FIELD_REF = Struct({"containerName": STRING, "divisor": QUANTITY, "resource": STRING}, ("resource",), atomic=True)
NAME_AND_VALUE = Struct({"name": STRING, "value": STRING}, ("name", "value"))
PROFILE = Struct({"localhostProfile": STRING, "type": STRING}, ("type",))
SELINUX = Struct({"level": STRING, "role": STRING, "type": STRING, "user": STRING})
WINDOWS = Struct(
    {"gmsaCredentialSpec": STRING, "gmsaCredentialSpecName": STRING, "hostProcess": BOOLEAN, "runAsUserName": STRING}
)
NAME_REF = Struct({"name": String(default="")}, type_name="LocalObjectReference", atomic=True)
NAMED = Struct({"name": STRING}, ("name",), type_name="PodSchedulingGate")
KEY_TO_PATH = Struct({"key": STRING, "mode": INT, "path": STRING}, ("key", "path"))
