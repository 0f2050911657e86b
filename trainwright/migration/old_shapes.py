"""What the training operator's kinds may look like, as far as they are read here: so that reading them needs no second look.

Source: the CRDs of training-operator 1.9. Fields that are not read are let through.
"""

from __future__ import annotations

from typing import Any

from trainwright.api.objects import Obj
from trainwright.api.pod_shapes import POD_SPEC
from trainwright.api.shapes import ANYTHING, FLAG, INT_OR_TEXT, LONG, QUANTITIES, TEXT, TEXT_MAP, Mapping, Record, Text, Whole

_NAMES = Record({"name": TEXT, "generateName": TEXT, "namespace": TEXT, "labels": TEXT_MAP, "annotations": TEXT_MAP}, open=True)
_COUNT = Whole(0)
_REPLICAS = Record(
    {
        "replicas": _COUNT,
        "restartPolicy": Text(one_of=("", "Always", "OnFailure", "Never", "ExitCode")),
        "template": Record({"metadata": _NAMES, "spec": POD_SPEC}, ("spec",)),
    },
    ("template",),
)
_RUN_POLICY = Record(
    {
        "activeDeadlineSeconds": LONG,
        "backoffLimit": _COUNT,
        "cleanPodPolicy": TEXT,
        "managedBy": TEXT,
        "suspend": FLAG,
        "ttlSecondsAfterFinished": _COUNT,
        "schedulingPolicy": Record(
            {
                "minAvailable": _COUNT,
                "minResources": QUANTITIES,
                "priorityClass": TEXT,
                "queue": TEXT,
                "scheduleTimeoutSeconds": _COUNT,
            },
            open=True,
        ),
    },
    open=True,
)
_SPEC: dict[str, Any] = {
    "runPolicy": _RUN_POLICY,
    "elasticPolicy": Record({"nProcPerNode": _COUNT}, open=True),
    "nprocPerNode": INT_OR_TEXT,
    "slotsPerWorker": Whole(1),
    "mpiImplementation": TEXT,
    "sshAuthMountPath": TEXT,
    "mainContainer": TEXT,
    "runLauncherAsWorker": FLAG,
    "launcherCreationPolicy": TEXT,
    "cleanPodPolicy": TEXT,
    "successPolicy": TEXT,
    "enableDynamicWorker": ANYTHING,
}


def shape_of(field: str) -> Record:
    """The shape of a kind whose replicas stand in `spec.FIELD`."""
    spec = Record({**_SPEC, field: Mapping(_REPLICAS)}, (field,), open=True)
    return Record({"metadata": _NAMES, "spec": spec}, ("metadata", "spec"), open=True)


def without_nulls(value: Any) -> Any:
    """A copy without fields that are null, as an API server reads them."""
    if isinstance(value, dict):
        kept: Obj = {key: without_nulls(part) for key, part in value.items() if part is not None}
        return kept
    if isinstance(value, list):
        return [without_nulls(part) for part in value]
    return value
