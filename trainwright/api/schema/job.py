"""Schema of a Job's spec and template (batch/v1) inside a JobSet or a runtime."""

from __future__ import annotations

from trainwright.api.schema.pod import POD_TEMPLATE
from trainwright.api.schema.references import LABEL_SELECTOR, TEMPLATE_METADATA
from trainwright.api.schema.types import BOOLEAN, INT, LONG, STRING, ListOf, Struct

POD_FAILURE_POLICY = Struct(
    {
        "rules": ListOf(
            Struct(
                {
                    "action": STRING,
                    "onExitCodes": Struct(
                        {"containerName": STRING, "operator": STRING, "values": ListOf(INT, distinct=True)},
                        ("operator", "values"),
                    ),
                    "onPodConditions": ListOf(Struct({"status": STRING, "type": STRING}, ("type",))),
                },
                ("action",),
            )
        )
    },
    ("rules",),
)
JOB_SUCCESS_POLICY = Struct({"rules": ListOf(Struct({"succeededCount": INT, "succeededIndexes": STRING}))}, ("rules",))
JOB_SPEC = Struct(
    {
        "activeDeadlineSeconds": LONG,
        "backoffLimit": INT,
        "backoffLimitPerIndex": INT,
        "completionMode": STRING,
        "completions": INT,
        "managedBy": STRING,
        "manualSelector": BOOLEAN,
        "maxFailedIndexes": INT,
        "parallelism": INT,
        "podFailurePolicy": POD_FAILURE_POLICY,
        "podReplacementPolicy": STRING,
        "selector": LABEL_SELECTOR,
        "successPolicy": JOB_SUCCESS_POLICY,
        "suspend": BOOLEAN,
        "template": POD_TEMPLATE,
        "ttlSecondsAfterFinished": INT,
    },
    ("template",),
    type_name="JobSpec",
)
JOB_TEMPLATE = Struct({"metadata": TEMPLATE_METADATA, "spec": JOB_SPEC}, type_name="JobTemplateSpec", written=("metadata",))
