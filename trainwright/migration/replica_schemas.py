"""Schemas of the training operator's kinds, for the fields that the migration reads, so that it need not check types again.

Source: the CRDs of training-operator 1.9. Other fields are not checked.
"""

from __future__ import annotations

from typing import Any

from trainwright.api.objects import Obj
from trainwright.api.schema.published import struct_named
from trainwright.api.schema.types import (
    ANY_VALUE,
    BOOLEAN,
    INT_OR_STRING,
    LONG,
    QUANTITIES,
    STRING,
    STRING_MAP,
    Integer,
    ListOf,
    MapOf,
    String,
    Struct,
)

_NAMES = Struct(
    {"name": STRING, "generateName": STRING, "namespace": STRING, "labels": STRING_MAP, "annotations": STRING_MAP}, open=True
)
_COUNT = Integer(0)
TEMPLATE = Struct({"metadata": _NAMES, "spec": struct_named("custom/PodSpec")}, ("spec",))
_REPLICAS = Struct(
    {
        "replicas": _COUNT,
        "restartPolicy": String(one_of=("", "Always", "OnFailure", "Never", "ExitCode")),
        "template": TEMPLATE,
    },
    ("template",),
)
_RUN_POLICY = Struct(
    {
        "activeDeadlineSeconds": LONG,
        "backoffLimit": _COUNT,
        "cleanPodPolicy": STRING,
        "managedBy": STRING,
        "suspend": BOOLEAN,
        "ttlSecondsAfterFinished": _COUNT,
        "schedulingPolicy": Struct(
            {
                "minAvailable": _COUNT,
                "minResources": QUANTITIES,
                "priorityClass": STRING,
                "queue": STRING,
                "scheduleTimeoutSeconds": _COUNT,
            },
            open=True,
        ),
    },
    open=True,
)
_SPEC: dict[str, Any] = {
    "runPolicy": _RUN_POLICY,
    "elasticPolicy": Struct(
        {
            "nProcPerNode": _COUNT,
            "maxRestarts": _COUNT,
            "rdzvBackend": STRING,
            "rdzvHost": STRING,
            "rdzvPort": _COUNT,
            "rdzvId": STRING,
            "rdzvConf": ListOf(Struct({"key": STRING, "value": STRING}, open=True)),
            "standalone": BOOLEAN,
        },
        open=True,
    ),
    "nprocPerNode": INT_OR_STRING,
    "slotsPerWorker": Integer(1),
    "mpiImplementation": STRING,
    "sshAuthMountPath": STRING,
    "mainContainer": STRING,
    "runLauncherAsWorker": BOOLEAN,
    "launcherCreationPolicy": STRING,
    "cleanPodPolicy": STRING,
    "successPolicy": STRING,
    "enableDynamicWorker": ANY_VALUE,
}


def schema_of(field: str) -> Struct:
    """Return the schema of a kind with its replicas in `spec.FIELD`."""
    spec = Struct({**_SPEC, field: MapOf(_REPLICAS)}, (field,), open=True)
    return Struct({"metadata": _NAMES, "spec": spec}, ("metadata", "spec"), open=True)


def without_nulls(value: Any) -> Any:
    """Return a copy without null fields, which an API server drops too."""
    if isinstance(value, dict):
        kept: Obj = {key: without_nulls(part) for key, part in value.items() if part is not None}
        return kept
    if isinstance(value, list):
        return [without_nulls(part) for part in value]
    return value
