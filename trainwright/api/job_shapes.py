"""Shape of a Job's spec and template (batch/v1), as a JobSet or a runtime holds it."""

from __future__ import annotations

from trainwright.api.pod_shapes import POD_TEMPLATE
from trainwright.api.reference_shapes import LABEL_SELECTOR, TEMPLATE_METADATA
from trainwright.api.shapes import FLAG, INT, LONG, TEXT, Record, Sequence

POD_FAILURE_POLICY = Record(
    {
        "rules": Sequence(
            Record(
                {
                    "action": TEXT,
                    "onExitCodes": Record(
                        {"containerName": TEXT, "operator": TEXT, "values": Sequence(INT, distinct=True)}, ("operator", "values")
                    ),
                    "onPodConditions": Sequence(Record({"status": TEXT, "type": TEXT}, ("type",))),
                },
                ("action",),
            )
        )
    },
    ("rules",),
)
JOB_SUCCESS_POLICY = Record({"rules": Sequence(Record({"succeededCount": INT, "succeededIndexes": TEXT}))}, ("rules",))
JOB_SPEC = Record(
    {
        "activeDeadlineSeconds": LONG,
        "backoffLimit": INT,
        "backoffLimitPerIndex": INT,
        "completionMode": TEXT,
        "completions": INT,
        "managedBy": TEXT,
        "manualSelector": FLAG,
        "maxFailedIndexes": INT,
        "parallelism": INT,
        "podFailurePolicy": POD_FAILURE_POLICY,
        "podReplacementPolicy": TEXT,
        "selector": LABEL_SELECTOR,
        "successPolicy": JOB_SUCCESS_POLICY,
        "suspend": FLAG,
        "template": POD_TEMPLATE,
        "ttlSecondsAfterFinished": INT,
    },
    ("template",),
    type_name="JobSpec",
)
JOB_TEMPLATE = Record({"metadata": TEMPLATE_METADATA, "spec": JOB_SPEC}, type_name="JobTemplateSpec", written=("metadata",))
