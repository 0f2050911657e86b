"""Schemas of the status of Pods and Jobs."""

from __future__ import annotations

from trainwright.api.schema.container import RESOURCES
from trainwright.api.schema.types import BOOLEAN, INT, LONG, QUANTITIES, STRING, Integer, ListOf, String, Struct

MOMENT = String(moment=True)
_CONDITION = {"lastTransitionTime": MOMENT, "message": STRING, "reason": STRING, "status": STRING, "type": STRING}
PROBED_CONDITION = Struct({**_CONDITION, "lastProbeTime": MOMENT}, ("status", "type"), type_name="JobCondition")
POD_CONDITION = Struct(
    {**_CONDITION, "lastProbeTime": MOMENT, "observedGeneration": LONG}, ("status", "type"), type_name="PodCondition"
)
_STATE = Struct(
    {
        "running": Struct({"startedAt": MOMENT}, type_name="ContainerStateRunning"),
        "terminated": Struct(
            {
                "containerID": STRING,
                "exitCode": INT,
                "finishedAt": MOMENT,
                "message": STRING,
                "reason": STRING,
                "signal": INT,
                "startedAt": MOMENT,
            },
            type_name="ContainerStateTerminated",
        ),
        "waiting": Struct({"message": STRING, "reason": STRING}, type_name="ContainerStateWaiting"),
    },
    type_name="ContainerState",
)
_USER = Struct(
    {"linux": Struct({"gid": LONG, "supplementalGroups": ListOf(LONG), "uid": LONG}, type_name="LinuxContainerUser")},
    type_name="ContainerUser",
)
_DEVICE = Struct({"health": STRING, "message": STRING, "resourceID": STRING}, type_name="ResourceHealth")
_MOUNT = Struct(
    {"mountPath": STRING, "name": STRING, "readOnly": BOOLEAN, "recursiveReadOnly": STRING}, type_name="VolumeMountStatus"
)
_CONTAINER = Struct(
    {
        "allocatedResources": QUANTITIES,
        "allocatedResourcesStatus": ListOf(
            Struct({"name": STRING, "resources": ListOf(_DEVICE, keys=("resourceID",))}, type_name="ResourceStatus"),
            keys=("name",),
        ),
        "containerID": STRING,
        "image": STRING,
        "imageID": STRING,
        "lastState": _STATE,
        "name": STRING,
        "ready": BOOLEAN,
        "resources": RESOURCES,
        "restartCount": INT,
        "started": BOOLEAN,
        "state": _STATE,
        "stopSignal": STRING,
        "user": _USER,
        "volumeMounts": ListOf(_MOUNT, keys=("mountPath",)),
    },
    type_name="ContainerStatus",
)
_ADDRESS = Struct({"ip": STRING})
POD_STATUS = Struct(
    {
        "allocatedResources": QUANTITIES,
        "conditions": ListOf(POD_CONDITION, keys=("type",)),
        "containerStatuses": ListOf(_CONTAINER),
        "ephemeralContainerStatuses": ListOf(_CONTAINER),
        "extendedResourceClaimStatus": Struct(open=True),
        "hostIP": STRING,
        "hostIPs": ListOf(_ADDRESS),
        "initContainerStatuses": ListOf(_CONTAINER),
        "message": STRING,
        "nominatedNodeName": STRING,
        "observedGeneration": LONG,
        "phase": STRING,
        "podIP": STRING,
        "podIPs": ListOf(_ADDRESS, keys=("ip",)),
        "qosClass": STRING,
        "reason": STRING,
        "resize": STRING,
        "resourceClaimStatuses": ListOf(Struct({"name": STRING, "resourceClaimName": STRING}), keys=("name",)),
        "resources": RESOURCES,
        "startTime": MOMENT,
    },
    type_name="PodStatus",
)
JOB_STATUS = Struct(
    {
        "active": Integer(),
        "completedIndexes": STRING,
        "completionTime": MOMENT,
        "conditions": ListOf(PROBED_CONDITION),
        "failed": Integer(),
        "failedIndexes": STRING,
        "ready": Integer(),
        "startTime": MOMENT,
        "succeeded": Integer(),
        "terminating": Integer(),
        "uncountedTerminatedPods": Struct(
            {"failed": ListOf(STRING, distinct=True), "succeeded": ListOf(STRING, distinct=True)},
            type_name="UncountedTerminatedPods",
        ),
    },
    type_name="JobStatus",
)
