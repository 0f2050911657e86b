"""Shapes of the status of Pods and Jobs, as kubelets and controllers write it."""

from __future__ import annotations

from trainwright.api.container_shapes import RESOURCES
from trainwright.api.shapes import FLAG, INT, LONG, QUANTITIES, TEXT, Record, Sequence, Text, Whole

MOMENT = Text(moment=True)
_CONDITION = {"lastTransitionTime": MOMENT, "message": TEXT, "reason": TEXT, "status": TEXT, "type": TEXT}
PROBED_CONDITION = Record({**_CONDITION, "lastProbeTime": MOMENT}, ("status", "type"), type_name="JobCondition")
POD_CONDITION = Record(
    {**_CONDITION, "lastProbeTime": MOMENT, "observedGeneration": LONG}, ("status", "type"), type_name="PodCondition"
)
_STATE = Record(
    {
        "running": Record({"startedAt": MOMENT}, type_name="ContainerStateRunning"),
        "terminated": Record(
            {
                "containerID": TEXT,
                "exitCode": INT,
                "finishedAt": MOMENT,
                "message": TEXT,
                "reason": TEXT,
                "signal": INT,
                "startedAt": MOMENT,
            },
            type_name="ContainerStateTerminated",
        ),
        "waiting": Record({"message": TEXT, "reason": TEXT}, type_name="ContainerStateWaiting"),
    },
    type_name="ContainerState",
)
_USER = Record(
    {"linux": Record({"gid": LONG, "supplementalGroups": Sequence(LONG), "uid": LONG}, type_name="LinuxContainerUser")},
    type_name="ContainerUser",
)
_DEVICE = Record({"health": TEXT, "message": TEXT, "resourceID": TEXT}, type_name="ResourceHealth")
_MOUNT = Record({"mountPath": TEXT, "name": TEXT, "readOnly": FLAG, "recursiveReadOnly": TEXT}, type_name="VolumeMountStatus")
_CONTAINER = Record(
    {
        "allocatedResources": QUANTITIES,
        "allocatedResourcesStatus": Sequence(
            Record({"name": TEXT, "resources": Sequence(_DEVICE, keys=("resourceID",))}, type_name="ResourceStatus"),
            keys=("name",),
        ),
        "containerID": TEXT,
        "image": TEXT,
        "imageID": TEXT,
        "lastState": _STATE,
        "name": TEXT,
        "ready": FLAG,
        "resources": RESOURCES,
        "restartCount": INT,
        "started": FLAG,
        "state": _STATE,
        "stopSignal": TEXT,
        "user": _USER,
        "volumeMounts": Sequence(_MOUNT, keys=("mountPath",)),
    },
    type_name="ContainerStatus",
)
_ADDRESS = Record({"ip": TEXT})
POD_STATUS = Record(
    {
        "allocatedResources": QUANTITIES,
        "conditions": Sequence(POD_CONDITION, keys=("type",)),
        "containerStatuses": Sequence(_CONTAINER),
        "ephemeralContainerStatuses": Sequence(_CONTAINER),
        "extendedResourceClaimStatus": Record(open=True),
        "hostIP": TEXT,
        "hostIPs": Sequence(_ADDRESS),
        "initContainerStatuses": Sequence(_CONTAINER),
        "message": TEXT,
        "nominatedNodeName": TEXT,
        "observedGeneration": LONG,
        "phase": TEXT,
        "podIP": TEXT,
        "podIPs": Sequence(_ADDRESS, keys=("ip",)),
        "qosClass": TEXT,
        "reason": TEXT,
        "resize": TEXT,
        "resourceClaimStatuses": Sequence(Record({"name": TEXT, "resourceClaimName": TEXT}), keys=("name",)),
        "resources": RESOURCES,
        "startTime": MOMENT,
    },
    type_name="PodStatus",
)
JOB_STATUS = Record(
    {
        "active": Whole(),
        "completedIndexes": TEXT,
        "completionTime": MOMENT,
        "conditions": Sequence(PROBED_CONDITION),
        "failed": Whole(),
        "failedIndexes": TEXT,
        "ready": Whole(),
        "startTime": MOMENT,
        "succeeded": Whole(),
        "terminating": Whole(),
        "uncountedTerminatedPods": Record(
            {"failed": Sequence(TEXT, distinct=True), "succeeded": Sequence(TEXT, distinct=True)},
            type_name="UncountedTerminatedPods",
        ),
    },
    type_name="JobStatus",
)
