"""Schema of a TrainJob (trainer.kubeflow.org/v1alpha1, Trainer 2.3 and later), with the defaults and rules of its schema."""

from __future__ import annotations

import re

from trainwright.api import names
from trainwright.api.schema.conditions import CONDITION, COUNT, COUNTS
from trainwright.api.schema.container import ENV_VAR, RESOURCES, SECURITY_CONTEXT, VOLUME_MOUNT
from trainwright.api.schema.jobset import kind_schema
from trainwright.api.schema.pod import AFFINITY, POD_SECURITY_CONTEXT, TOLERATION
from trainwright.api.schema.references import NAME_REF, NAMED, TEMPLATE_METADATA
from trainwright.api.schema.runtime import at_least_one
from trainwright.api.schema.types import STRING_MAP, Boolean, Integer, ListOf, Rule, String, Struct, unchanged
from trainwright.api.schema.volumes import VOLUME

FIXED = unchanged("field is immutable")
_URI_PATTERN = "^[A-Za-z][A-Za-z0-9+.-]*://.+$"
_URI_EXPRESSION = re.compile(_URI_PATTERN)
_LABEL_PATTERN = "^[a-z]([-a-z0-9]*[a-z0-9])?$"
_LABEL_EXPRESSION = re.compile(r"^[a-z]([-a-z0-9]*[a-z0-9])?\Z")

_URI = Rule(
    f"self == '' || self.matches('{_URI_PATTERN}')",
    "storageUri may be empty, or it must be a valid URI (scheme://...)",
    holds=lambda uri: not uri or _URI_EXPRESSION.search(uri) is not None,
)
_MANAGERS = (names.TRAINJOB_CONTROLLER, names.MULTIKUEUE_CONTROLLER)
_KNOWN_MANAGER = Rule(
    f"self in {list(_MANAGERS)}",
    f"ManagedBy must be {' or '.join(_MANAGERS)} if set",
    holds=lambda manager: manager in _MANAGERS,
)
_DNS_LABEL = Rule(
    f"self.metadata.name.matches('{_LABEL_PATTERN}')",
    "metadata.name must match RFC 1035 DNS label format",
    holds=lambda job: _LABEL_EXPRESSION.match(job["metadata"].get("name") or "") is not None,
    about="metadata.name",
)
_SHORT_NAME = Rule(
    "size(self.metadata.name) <= 63",
    "metadata.name must be no more than 63 characters",
    holds=lambda job: len(job["metadata"].get("name") or "") <= 63,
    about="metadata.name",
)

_ENV = ListOf(ENV_VAR, at_most=128, keys=("name",))
_WORDS = ListOf(String(at_most=1048576), at_most=128)
_INITIALIZER_FIELDS = {"env": _ENV, "secretRef": NAME_REF, "storageUri": String(at_most=2048, rules=(_URI,))}
_CONTAINER_PATCHES = ListOf(
    Struct(
        {
            "env": _ENV,
            "name": String(1, 253),
            "securityContext": SECURITY_CONTEXT,
            "volumeMounts": ListOf(VOLUME_MOUNT, at_most=128, keys=("name",)),
        },
        ("name",),
        type_name="ContainerPatch",
    ),
    at_most=64,
    keys=("name",),
    rules=(FIXED,),
)
_POD_PATCH = Struct(
    {
        "affinity": AFFINITY,
        "containers": _CONTAINER_PATCHES,
        "imagePullSecrets": ListOf(NAME_REF, at_most=64, keys=("name",), rules=(FIXED,)),
        "initContainers": _CONTAINER_PATCHES,
        "nodeSelector": STRING_MAP,
        "schedulingGates": ListOf(NAMED, at_most=16, keys=("name",)),
        "securityContext": Struct(POD_SECURITY_CONTEXT.fields, rules=(FIXED,), type_name=POD_SECURITY_CONTEXT.type_name),
        "serviceAccountName": String(at_most=253, rules=(FIXED,)),
        "terminationGracePeriodSeconds": Integer(0, bits=64, rules=(FIXED,)),
        "tolerations": ListOf(TOLERATION, at_most=128),
        "volumes": ListOf(VOLUME, at_most=128, keys=("name",), rules=(FIXED,)),
    },
    type_name="PodSpecPatch",
)
_POD_TEMPLATE_PATCH = Struct({"metadata": TEMPLATE_METADATA, "spec": _POD_PATCH}, type_name="PodTemplatePatch")
_JOB_PATCH = Struct({"template": _POD_TEMPLATE_PATCH}, type_name="JobSpecPatch")
_JOB_TEMPLATE_PATCH = Struct({"metadata": TEMPLATE_METADATA, "spec": _JOB_PATCH}, type_name="JobTemplatePatch")
_REPLICATED_JOB_PATCH = Struct(
    {"name": String(1, 253), "template": _JOB_TEMPLATE_PATCH}, ("name",), type_name="ReplicatedJobPatch"
)
_JOBSET_PATCH = Struct(
    {"replicatedJobs": ListOf(_REPLICATED_JOB_PATCH, at_most=100, keys=("name",))}, type_name="JobSetSpecPatch"
)
_TEMPLATE_PATCH = Struct({"metadata": TEMPLATE_METADATA, "spec": _JOBSET_PATCH}, type_name="JobSetTemplatePatch")
_RUNTIME_PATCH = Struct(
    {
        "manager": String(1, 253, rules=(FIXED,)),
        "time": String(moment=True),
        "trainingRuntimeSpec": Struct({"template": _TEMPLATE_PATCH}, type_name="TrainingRuntimeSpecPatch"),
    },
    ("manager",),
    type_name="RuntimePatch",
)
_SPEC = Struct(
    {
        "activeDeadlineSeconds": Integer(1, bits=64, rules=(FIXED,)),
        "initializer": Struct(
            {
                "dataset": Struct(_INITIALIZER_FIELDS, type_name="DatasetInitializer"),
                "model": Struct(_INITIALIZER_FIELDS, type_name="ModelInitializer"),
            },
            rules=(FIXED,),
            type_name="Initializer",
        ),
        "managedBy": String(at_most=253, default=names.TRAINJOB_CONTROLLER, rules=(_KNOWN_MANAGER, FIXED)),
        "runtimePatches": ListOf(_RUNTIME_PATCH, at_most=16, keys=("manager",)),
        "runtimeRef": Struct(
            {
                "apiGroup": String(at_most=253, default="trainer.kubeflow.org"),
                "kind": String(at_most=253, default="ClusterTrainingRuntime"),
                "name": String(1, 253),
            },
            ("name",),
            rules=(FIXED,),
            type_name="RuntimeRef",
        ),
        "suspend": Boolean(default=False),
        "trainer": Struct(
            {
                "args": _WORDS,
                "command": _WORDS,
                "env": _ENV,
                "image": String(at_most=500),
                "numNodes": Integer(0),
                "numProcPerNode": Integer(rules=(at_least_one("numProcPerNode must be greater than or equal to 1"),)),
                "resourcesPerNode": RESOURCES,
            },
            rules=(FIXED,),
            type_name="Trainer",
        ),
    },
    ("runtimeRef",),
    type_name="TrainJobSpec",
)
_METRIC = Struct({"name": String(1, 64), "value": String(1, 64)}, ("name", "value"))
_REPORTED = Rule(
    "has(self.lastUpdatedTime)",
    "lastUpdatedTime is required when trainerStatus is present",
    holds=lambda status: "lastUpdatedTime" in status,
)
_STATUS = Struct(
    {
        "conditions": ListOf(CONDITION, at_most=8, keys=("type",)),
        "jobsStatus": ListOf(
            Struct(COUNTS | {"name": String(1, 253)}, (*COUNTS, "name")),
            at_most=100,
            keys=("name",),
        ),
        "trainerStatus": Struct(
            {
                "estimatedRemainingSeconds": COUNT,
                "lastUpdatedTime": String(moment=True),
                "metrics": ListOf(_METRIC, at_most=256),
                "progressPercentage": Integer(0, 100),
            },
            rules=(_REPORTED,),
        ),
    },
    at_least_fields=1,
    type_name="TrainJobStatus",
)
TRAINJOB = kind_schema(_SPEC, _STATUS, rules=(_DNS_LABEL, _SHORT_NAME))
