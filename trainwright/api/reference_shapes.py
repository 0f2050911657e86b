"""Shapes of what points at other things and is part of many: keys of ConfigMaps, fields, selectors, a template's metadata."""

from __future__ import annotations

from trainwright.api.shapes import FLAG, INT, QUANTITY, TEXT, TEXT_MAP, TEXTS, Flag, Record, Sequence, Text

TEMPLATE_METADATA = Record(
    {"annotations": TEXT_MAP, "finalizers": TEXTS, "labels": TEXT_MAP, "name": TEXT, "namespace": TEXT}, type_name="ObjectMeta"
)
REQUIREMENT = Record({"key": TEXT, "operator": TEXT, "values": TEXTS}, ("key", "operator"))
LABEL_SELECTOR = Record(
    {"matchExpressions": Sequence(REQUIREMENT), "matchLabels": TEXT_MAP}, type_name="LabelSelector", atomic=True
)
KEY_REF = Record({"key": TEXT, "name": Text(default=""), "optional": FLAG}, ("key",), type_name="KeySelector", atomic=True)
FIELD_REF = Record({"apiVersion": TEXT, "fieldPath": TEXT}, ("fieldPath",), type_name="ObjectFieldSelector", atomic=True)
FILE_KEY_REF = Record(
    {"key": TEXT, "optional": Flag(default=False), "path": TEXT, "volumeName": TEXT}, ("key", "path", "volumeName"), atomic=True
)
RESOURCE_FIELD_REF = Record({"containerName": TEXT, "divisor": QUANTITY, "resource": TEXT}, ("resource",), atomic=True)
NAME_AND_VALUE = Record({"name": TEXT, "value": TEXT}, ("name", "value"))
PROFILE = Record({"localhostProfile": TEXT, "type": TEXT}, ("type",))
SELINUX = Record({"level": TEXT, "role": TEXT, "type": TEXT, "user": TEXT})
WINDOWS = Record({"gmsaCredentialSpec": TEXT, "gmsaCredentialSpecName": TEXT, "hostProcess": FLAG, "runAsUserName": TEXT})
NAME_REF = Record({"name": Text(default="")}, type_name="LocalObjectReference", atomic=True)
NAMED = Record({"name": TEXT}, ("name",), type_name="PodSchedulingGate")
KEY_TO_PATH = Record({"key": TEXT, "mode": INT, "path": TEXT}, ("key", "path"))
