"""Schema of a Deployment (apps/v1)."""

from __future__ import annotations

from trainwright.api.schema.core import CONDITION, MOMENT
from trainwright.api.schema.jobset import kind_schema
from trainwright.api.schema.pod import POD_TEMPLATE
from trainwright.api.schema.references import LABEL_SELECTOR
from trainwright.api.schema.types import BOOLEAN, INT, INT_OR_STRING, LONG, STRING, Integer, ListOf, Struct

_CONDITION = Struct({**CONDITION.fields, "lastUpdateTime": MOMENT}, CONDITION.required, type_name="DeploymentCondition")
_STRATEGY = Struct(
    {
        "rollingUpdate": Struct(
            {"maxSurge": INT_OR_STRING, "maxUnavailable": INT_OR_STRING}, type_name="RollingUpdateDeployment"
        ),
        "type": STRING,
    },
    type_name="DeploymentStrategy",
)
_SPEC = Struct(
    {
        "minReadySeconds": INT,
        "paused": BOOLEAN,
        "progressDeadlineSeconds": Integer(default=600),
        "replicas": Integer(default=1),
        "revisionHistoryLimit": Integer(default=10),
        "selector": LABEL_SELECTOR,
        "strategy": _STRATEGY,
        "template": POD_TEMPLATE,
    },
    ("selector", "template"),
    type_name="DeploymentSpec",
)
_COUNTS = ("availableReplicas", "collisionCount", "readyReplicas", "replicas", "terminatingReplicas", "unavailableReplicas")
_STATUS = Struct(
    {
        "conditions": ListOf(_CONDITION, keys=("type",)),
        "observedGeneration": LONG,
        "updatedReplicas": INT,
        **dict.fromkeys(_COUNTS, INT),
    },
    type_name="DeploymentStatus",
)
DEPLOYMENT = kind_schema(_SPEC, _STATUS)
