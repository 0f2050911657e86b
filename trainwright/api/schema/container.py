"""Schemas of containers and their parts: variables, ports, probes, resources, mounts, security."""

from __future__ import annotations

from trainwright.api.schema.references import (
    FIELD_REF,
    FILE_KEY_REF,
    KEY_REF,
    NAME_AND_VALUE,
    PROFILE,
    RESOURCE_FIELD_REF,
    SELINUX,
    WINDOWS,
)
from trainwright.api.schema.types import (
    BOOLEAN,
    INT,
    INT_OR_STRING,
    LONG,
    QUANTITIES,
    STRING,
    STRINGS,
    ListOf,
    Schema,
    String,
    Struct,
)

ENV_VAR = Struct(
    {
        "name": STRING,
        "value": STRING,
        "valueFrom": Struct(
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
OPTIONAL_NAME = Struct({"name": String(default=""), "optional": BOOLEAN})
ENV_SOURCE = Struct({"configMapRef": OPTIONAL_NAME, "prefix": STRING, "secretRef": OPTIONAL_NAME}, type_name="EnvFromSource")
EXEC = Struct({"command": STRINGS})
HTTP_GET = Struct(
    {"host": STRING, "httpHeaders": ListOf(NAME_AND_VALUE), "path": STRING, "port": INT_OR_STRING, "scheme": STRING}, ("port",)
)
TCP_SOCKET = Struct({"host": STRING, "port": INT_OR_STRING}, ("port",))
LIFECYCLE_HANDLER = Struct(
    {"exec": EXEC, "httpGet": HTTP_GET, "sleep": Struct({"seconds": LONG}, ("seconds",)), "tcpSocket": TCP_SOCKET}
)
LIFECYCLE = Struct({"postStart": LIFECYCLE_HANDLER, "preStop": LIFECYCLE_HANDLER, "stopSignal": STRING}, type_name="Lifecycle")
PROBE = Struct(
    {
        "exec": EXEC,
        "failureThreshold": INT,
        "grpc": Struct({"port": INT, "service": String(default="")}, ("port",)),
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
PORT = Struct(
    {"containerPort": INT, "hostIP": STRING, "hostPort": INT, "name": STRING, "protocol": String(default="TCP")},
    ("containerPort",),
    type_name="ContainerPort",
)
RESIZE_RULE = Struct({"resourceName": STRING, "restartPolicy": STRING}, ("resourceName", "restartPolicy"))
RESOURCE_CLAIM = Struct({"name": STRING, "request": STRING}, ("name",))
RESOURCES = Struct(
    {"claims": ListOf(RESOURCE_CLAIM, keys=("name",)), "limits": QUANTITIES, "requests": QUANTITIES},
    type_name="ResourceRequirements",
)
RESTART_RULE = Struct(
    {"action": STRING, "exitCodes": Struct({"operator": STRING, "values": ListOf(INT, distinct=True)}, ("operator",))},
    ("action",),
)
SECURITY_CONTEXT = Struct(
    {
        "allowPrivilegeEscalation": BOOLEAN,
        "appArmorProfile": PROFILE,
        "capabilities": Struct({"add": STRINGS, "drop": STRINGS}),
        "privileged": BOOLEAN,
        "procMount": STRING,
        "readOnlyRootFilesystem": BOOLEAN,
        "runAsGroup": LONG,
        "runAsNonRoot": BOOLEAN,
        "runAsUser": LONG,
        "seLinuxOptions": SELINUX,
        "seccompProfile": PROFILE,
        "windowsOptions": WINDOWS,
    },
    type_name="SecurityContext",
)
VOLUME_DEVICE = Struct({"devicePath": STRING, "name": STRING}, ("devicePath", "name"))
VOLUME_MOUNT = Struct(
    {
        "mountPath": STRING,
        "mountPropagation": STRING,
        "name": STRING,
        "readOnly": BOOLEAN,
        "recursiveReadOnly": STRING,
        "subPath": STRING,
        "subPathExpr": STRING,
    },
    ("mountPath", "name"),
    type_name="VolumeMount",
)
_FIELDS: dict[str, Schema] = {
    "args": STRINGS,
    "command": STRINGS,
    "env": ListOf(ENV_VAR, keys=("name",)),
    "envFrom": ListOf(ENV_SOURCE),
    "image": STRING,
    "imagePullPolicy": STRING,
    "lifecycle": LIFECYCLE,
    "livenessProbe": PROBE,
    "name": STRING,
    "ports": ListOf(PORT, keys=("containerPort", "protocol")),
    "readinessProbe": PROBE,
    "resizePolicy": ListOf(RESIZE_RULE),
    "resources": RESOURCES,
    "restartPolicy": STRING,
    "restartPolicyRules": ListOf(RESTART_RULE),
    "securityContext": SECURITY_CONTEXT,
    "startupProbe": PROBE,
    "stdin": BOOLEAN,
    "stdinOnce": BOOLEAN,
    "terminationMessagePath": STRING,
    "terminationMessagePolicy": STRING,
    "tty": BOOLEAN,
    "volumeDevices": ListOf(VOLUME_DEVICE, keys=("devicePath",)),
    "volumeMounts": ListOf(VOLUME_MOUNT, keys=("mountPath",)),
    "workingDir": STRING,
}
CONTAINER = Struct(_FIELDS, ("name",), type_name="Container", written=("resources",))
EPHEMERAL_CONTAINER = Struct(
    _FIELDS | {"targetContainerName": STRING}, ("name",), type_name="EphemeralContainer", written=("resources",)
)
