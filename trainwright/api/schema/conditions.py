"""Schema of conditions in the status of TrainJobs and JobSets."""

from __future__ import annotations

from trainwright.api.schema.types import Integer, String, Struct

COUNT = Integer(0)
CONDITION = Struct(
    {
        "lastTransitionTime": String(moment=True),
        "message": String(at_most=32768),
        "observedGeneration": Integer(0, bits=64),
        "reason": String(1, 1024, r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"),
        "status": String(one_of=("True", "False", "Unknown")),
        "type": String(
            at_most=316,
            pattern=r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
            r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
        ),
    },
    ("lastTransitionTime", "message", "reason", "status", "type"),
    type_name="Condition",
)
COUNTS = {"active": COUNT, "failed": COUNT, "ready": COUNT, "succeeded": COUNT, "suspended": COUNT}
