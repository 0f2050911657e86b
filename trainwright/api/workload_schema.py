"""Shapes of the built-in workload objects: containers, pods and Jobs, as far as our own controllers and node read them.

Fields that we pass on without reading are `Anything`: known, so that strict checking does not refuse them.
"""

from __future__ import annotations

from trainwright.api.schema import Anything, Flag, IntOrText, Mapping, Record, Sequence, Shape, Text, Whole

ANY = Anything()

METADATA = Record(
    {
        "name": Text(),
        "generateName": Text(),
        "namespace": Text(),
        "labels": Mapping(Text()),
        "annotations": Mapping(Text()),
        "finalizers": Sequence(Text()),
        "ownerReferences": Sequence(Record({}, ("apiVersion", "kind", "name", "uid"), open=True)),
        "uid": Text(),
        "resourceVersion": Text(),
        "generation": ANY,
        "creationTimestamp": ANY,
        "deletionTimestamp": ANY,
        "deletionGracePeriodSeconds": ANY,
        "managedFields": ANY,
        "selfLink": ANY,
    }
)
ENV = Sequence(Record({"name": Text(at_least=1), "value": Text(), "valueFrom": Record(open=True)}, ("name",)), key="name")
RESOURCES = Record(
    {
        "limits": Mapping(IntOrText()),
        "requests": Mapping(IntOrText()),
        "claims": Sequence(Record({"name": Text(), "request": Text()}, ("name",)), key="name"),
    }
)
MOUNTS = Sequence(
    Record(
        {
            "name": Text(),
            "mountPath": Text(at_least=1),
            "subPath": Text(),
            "subPathExpr": Text(),
            "readOnly": Flag(),
            "mountPropagation": ANY,
            "recursiveReadOnly": ANY,
        },
        ("name", "mountPath"),
    ),
    key="mountPath",
)
_CONTAINER_FIELDS: dict[str, Shape] = {
    "name": Text(at_least=1),
    "image": Text(),
    "command": Sequence(Text()),
    "args": Sequence(Text()),
    "workingDir": Text(),
    "env": ENV,
    "envFrom": Sequence(Record(open=True)),
    "ports": Sequence(Record({"containerPort": Whole(1, 65535)}, ("containerPort",), open=True)),
    "resources": RESOURCES,
    "volumeMounts": MOUNTS,
    "restartPolicy": Text(),
} | dict.fromkeys(
    (
        "restartPolicyRules",
        "resizePolicy",
        "volumeDevices",
        "livenessProbe",
        "readinessProbe",
        "startupProbe",
        "lifecycle",
        "terminationMessagePath",
        "terminationMessagePolicy",
        "imagePullPolicy",
        "securityContext",
        "stdin",
        "stdinOnce",
        "tty",
    ),
    ANY,
)
CONTAINER = Record(_CONTAINER_FIELDS, ("name",))
POD_SPEC = Record(
    {
        "containers": Sequence(CONTAINER, at_least=1, key="name"),
        "initContainers": Sequence(CONTAINER, key="name"),
        "volumes": Sequence(Record({"name": Text(at_least=1)}, ("name",), open=True), key="name"),
        "restartPolicy": Text(one_of=("Always", "OnFailure", "Never")),
        "terminationGracePeriodSeconds": Whole(0, 2**63 - 1),
        "activeDeadlineSeconds": Whole(1, 2**31 - 1),
        "nodeSelector": Mapping(Text()),
        "nodeName": Text(),
        "hostname": Text(),
        "subdomain": Text(),
        "serviceAccountName": Text(),
        "schedulerName": Text(),
        "priorityClassName": Text(),
        "schedulingGates": Sequence(Record({"name": Text()}, ("name",)), key="name"),
        "imagePullSecrets": Sequence(Record({"name": Text()})),
    }
    | dict.fromkeys(
        (
            "affinity",
            "tolerations",
            "securityContext",
            "serviceAccount",
            "automountServiceAccountToken",
            "dnsPolicy",
            "dnsConfig",
            "enableServiceLinks",
            "ephemeralContainers",
            "hostAliases",
            "hostIPC",
            "hostNetwork",
            "hostPID",
            "hostUsers",
            "hostnameOverride",
            "os",
            "overhead",
            "preemptionPolicy",
            "priority",
            "readinessGates",
            "resourceClaims",
            "resources",
            "runtimeClassName",
            "setHostnameAsFQDN",
            "shareProcessNamespace",
            "topologySpreadConstraints",
            "workloadRef",
        ),
        ANY,
    ),
    ("containers",),
)
POD_TEMPLATE = Record({"metadata": METADATA, "spec": POD_SPEC}, ("spec",))
JOB_SPEC = Record(
    {
        "parallelism": Whole(0),
        "completions": Whole(0),
        "completionMode": Text(one_of=("Indexed", "NonIndexed")),
        "backoffLimit": Whole(0),
        "backoffLimitPerIndex": Whole(0),
        "maxFailedIndexes": Whole(0),
        "activeDeadlineSeconds": Whole(0, 2**63 - 1),
        "ttlSecondsAfterFinished": Whole(0),
        "suspend": Flag(),
        "manualSelector": Flag(),
        "managedBy": Text(),
        "podReplacementPolicy": Text(one_of=("TerminatingOrFailed", "Failed")),
        "podFailurePolicy": ANY,
        "successPolicy": ANY,
        "selector": ANY,
        "template": POD_TEMPLATE,
    },
    ("template",),
)
JOB_TEMPLATE = Record({"metadata": METADATA, "spec": JOB_SPEC}, ("spec",))


def kind_shape(spec: Shape, *, status: Shape = ANY, required: tuple[str, ...] = ("spec",)) -> Record:
    """The shape of a whole object around the shape of its spec."""
    return Record({"apiVersion": Text(), "kind": Text(), "metadata": METADATA, "spec": spec, "status": status}, required)


JOB = kind_shape(JOB_SPEC)
POD = kind_shape(POD_SPEC)
