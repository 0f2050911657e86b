"""Shape of a JobSet (jobset.x-k8s.io/v1alpha2), with the defaults of its schema; also the template inside a runtime.

Source: section 1 of the JobSet API as served by JobSet 0.13.
"""

from __future__ import annotations

from trainwright.api.schema import Flag, Record, Sequence, Text, Whole
from trainwright.api.workload_schema import ANY, JOB_TEMPLATE, kind_shape

LABEL = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"

REPLICATED_JOB = Record(
    {
        "name": Text(at_least=1),
        "groupName": Text(at_most=63, pattern=LABEL, default="default"),
        "replicas": Whole(0, default=1),
        "template": JOB_TEMPLATE,
        "dependsOn": Sequence(
            Record({"name": Text(at_least=1), "status": Text(one_of=("Ready", "Complete"))}, ("name", "status")),
            at_most=5,
            key="name",
        ),
    },
    ("name", "template"),
)
FAILURE_RULE = Record(
    {
        "name": Text(),
        "action": Text(
            one_of=(
                "FailJobSet",
                "RestartJobSet",
                "RestartJobSetAndIgnoreMaxRestarts",
                "RestartJob",
                "RestartJobAndIgnoreMaxRestarts",
            )
        ),
        "onJobFailureReasons": Sequence(Text()),
        "onJobFailureMessagePatterns": Sequence(Text()),
        "targetReplicatedJobs": Sequence(Text()),
    },
    ("action",),
)
JOBSET_SPEC = Record(
    {
        "replicatedJobs": Sequence(REPLICATED_JOB, key="name"),
        "network": Record({"enableDNSHostnames": Flag(), "subdomain": Text(), "publishNotReadyAddresses": Flag()}),
        "successPolicy": Record(
            {"operator": Text(one_of=("All", "Any")), "targetReplicatedJobs": Sequence(Text())}, ("operator",)
        ),
        "failurePolicy": Record(
            {
                "maxRestarts": Whole(),
                "restartStrategy": Text(one_of=("Recreate", "BlockingRecreate", "InPlaceRestart"), default="Recreate"),
                "rules": Sequence(FAILURE_RULE),
            }
        ),
        "startupPolicy": Record({"startupPolicyOrder": Text(one_of=("AnyOrder", "InOrder"))}, ("startupPolicyOrder",)),
        "suspend": Flag(),
        "coordinator": Record({"replicatedJob": Text(), "jobIndex": Whole(0), "podIndex": Whole(0)}, ("replicatedJob",)),
        "managedBy": Text(),
        "ttlSecondsAfterFinished": Whole(0),
        "volumeClaimPolicies": Sequence(
            Record(
                {
                    "templates": Sequence(ANY, at_most=50),
                    "retentionPolicy": Record({"whenDeleted": Text(one_of=("Delete", "Retain"), default="Delete")}),
                }
            ),
            at_most=50,
        ),
    }
)
JOBSET = kind_shape(JOBSET_SPEC, required=())
