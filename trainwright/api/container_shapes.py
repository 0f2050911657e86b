"""Shapes of containers and of what stands in them: variables, ports, probes, resources, mounts, security."""

from __future__ import annotations

from trainwright.api.reference_shapes import (
    FIELD_REF,
    FILE_KEY_REF,
    KEY_REF,
    NAME_AND_VALUE,
    PROFILE,
    RESOURCE_FIELD_REF,
    SELINUX,
    WINDOWS,
)
from trainwright.api.shapes import FLAG, INT, INT_OR_TEXT, LONG, QUANTITIES, TEXT, TEXTS, Record, Sequence, Shape, Text

ENV_VAR = Record(
    {
        "name": TEXT,
        "value": TEXT,
        "valueFrom": Record(
            {
                "configMapKeyRef": KEY_REF,
                "fieldRef": FIELD_REF,
                "fileKeyRef": FILE_KEY_REF,
                "resourceFieldRef": RESOURCE_FIELD_REF,
                "secretKeyRef": KEY_REF,
            }
        ),
    },
    ("name",),
    type_name="EnvVar",
)
OPTIONAL_NAME = Record({"name": Text(default=""), "optional": FLAG})
ENV_SOURCE = Record({"configMapRef": OPTIONAL_NAME, "prefix": TEXT, "secretRef": OPTIONAL_NAME}, type_name="EnvFromSource")
EXEC = Record({"command": TEXTS})
HTTP_GET = Record(
    {"host": TEXT, "httpHeaders": Sequence(NAME_AND_VALUE), "path": TEXT, "port": INT_OR_TEXT, "scheme": TEXT}, ("port",)
)
TCP_SOCKET = Record({"host": TEXT, "port": INT_OR_TEXT}, ("port",))
LIFECYCLE_HANDLER = Record(
    {"exec": EXEC, "httpGet": HTTP_GET, "sleep": Record({"seconds": LONG}, ("seconds",)), "tcpSocket": TCP_SOCKET}
)
LIFECYCLE = Record({"postStart": LIFECYCLE_HANDLER, "preStop": LIFECYCLE_HANDLER, "stopSignal": TEXT}, type_name="Lifecycle")
PROBE = Record(
    {
        "exec": EXEC,
        "failureThreshold": INT,
        "grpc": Record({"port": INT, "service": Text(default="")}, ("port",)),
        "httpGet": HTTP_GET,
        "initialDelaySeconds": INT,
        "periodSeconds": INT,
        "successThreshold": INT,
        "tcpSocket": TCP_SOCKET,
        "terminationGracePeriodSeconds": LONG,
        "timeoutSeconds": INT,
    },
    type_name="Probe",
)
PORT = Record(
    {"containerPort": INT, "hostIP": TEXT, "hostPort": INT, "name": TEXT, "protocol": Text(default="TCP")},
    ("containerPort",),
    type_name="ContainerPort",
)
RESIZE_RULE = Record({"resourceName": TEXT, "restartPolicy": TEXT}, ("resourceName", "restartPolicy"))
RESOURCE_CLAIM = Record({"name": TEXT, "request": TEXT}, ("name",))
RESOURCES = Record(
    {"claims": Sequence(RESOURCE_CLAIM, keys=("name",)), "limits": QUANTITIES, "requests": QUANTITIES},
    type_name="ResourceRequirements",
)
RESTART_RULE = Record(
    {"action": TEXT, "exitCodes": Record({"operator": TEXT, "values": Sequence(INT, distinct=True)}, ("operator",))}, ("action",)
)
SECURITY_CONTEXT = Record(
    {
        "allowPrivilegeEscalation": FLAG,
        "appArmorProfile": PROFILE,
        "capabilities": Record({"add": TEXTS, "drop": TEXTS}),
        "privileged": FLAG,
        "procMount": TEXT,
        "readOnlyRootFilesystem": FLAG,
        "runAsGroup": LONG,
        "runAsNonRoot": FLAG,
        "runAsUser": LONG,
        "seLinuxOptions": SELINUX,
        "seccompProfile": PROFILE,
        "windowsOptions": WINDOWS,
    },
    type_name="SecurityContext",
)
VOLUME_DEVICE = Record({"devicePath": TEXT, "name": TEXT}, ("devicePath", "name"))
VOLUME_MOUNT = Record(
    {
        "mountPath": TEXT,
        "mountPropagation": TEXT,
        "name": TEXT,
        "readOnly": FLAG,
        "recursiveReadOnly": TEXT,
        "subPath": TEXT,
        "subPathExpr": TEXT,
    },
    ("mountPath", "name"),
    type_name="VolumeMount",
)
_FIELDS: dict[str, Shape] = {
    "args": TEXTS,
    "command": TEXTS,
    "env": Sequence(ENV_VAR, keys=("name",)),
    "envFrom": Sequence(ENV_SOURCE),
    "image": TEXT,
    "imagePullPolicy": TEXT,
    "lifecycle": LIFECYCLE,
    "livenessProbe": PROBE,
    "name": TEXT,
    "ports": Sequence(PORT, keys=("containerPort", "protocol")),
    "readinessProbe": PROBE,
    "resizePolicy": Sequence(RESIZE_RULE),
    "resources": RESOURCES,
    "restartPolicy": TEXT,
    "restartPolicyRules": Sequence(RESTART_RULE),
    "securityContext": SECURITY_CONTEXT,
    "startupProbe": PROBE,
    "stdin": FLAG,
    "stdinOnce": FLAG,
    "terminationMessagePath": TEXT,
    "terminationMessagePolicy": TEXT,
    "tty": FLAG,
    "volumeDevices": Sequence(VOLUME_DEVICE, keys=("devicePath",)),
    "volumeMounts": Sequence(VOLUME_MOUNT, keys=("mountPath",)),
    "workingDir": TEXT,
}
CONTAINER = Record(_FIELDS, ("name",), type_name="Container", written=("resources",))
EPHEMERAL_CONTAINER = Record(
    _FIELDS | {"targetContainerName": TEXT}, ("name",), type_name="EphemeralContainer", written=("resources",)
)
