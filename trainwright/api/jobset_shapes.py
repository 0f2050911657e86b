"""Shape of a JobSet (jobset.x-k8s.io/v1alpha2), with the defaults and rules of its schema; also the template inside a runtime."""

from __future__ import annotations

from typing import Any

from trainwright.api.job_shapes import JOB_TEMPLATE
from trainwright.api.shapes import (
    ANYTHING,
    FLAG,
    INT,
    PLAIN_INT,
    TEXT,
    TEXTS,
    Record,
    Rule,
    Sequence,
    Shape,
    Text,
    Whole,
    unchanged,
)
from trainwright.api.status_shapes import CONDITION
from trainwright.api.volume_shapes import CLAIM_TEMPLATE

FIXED = unchanged("Value is immutable")


def _one_order(spec: Any) -> bool:
    in_order = (spec.get("startupPolicy") or {}).get("startupPolicyOrder") == "InOrder"
    return not (in_order and any("dependsOn" in job for job in spec.get("replicatedJobs") or []))


def _no_namespace(policy: Any) -> bool:
    return not any((template.get("metadata") or {}).get("namespace") for template in policy.get("templates") or [])


_ONE_ORDER = Rule(
    "!(has(self.startupPolicy) && self.startupPolicy.startupPolicyOrder == 'InOrder'"
    " && has(self.replicatedJobs) && self.replicatedJobs.exists(job, has(job.dependsOn)))",
    "StartupPolicy and DependsOn APIs are mutually exclusive",
    holds=_one_order,
)
_OWN_NAMESPACE = Rule(
    "!has(self.templates) || self.templates.all(t, !has(t.metadata) || !has(t.metadata.namespace) || size(t.metadata.namespace) == 0)",
    "namespace cannot be set for VolumeClaimPolicies templates",
    holds=_no_namespace,
)
_DEPENDENCY = Record({"name": TEXT, "status": Text(one_of=("Ready", "Complete"))}, ("name", "status"))
FAILURE_ACTIONS = (
    "FailJobSet",
    "RestartJobSet",
    "RestartJobSetAndIgnoreMaxRestarts",
    "RestartJob",
    "RestartJobAndIgnoreMaxRestarts",
)
_FAILURE_RULE = Record(
    {
        "action": Text(one_of=FAILURE_ACTIONS),
        "name": TEXT,
        "onJobFailureMessagePatterns": TEXTS,
        "onJobFailureReasons": TEXTS,
        "targetReplicatedJobs": TEXTS,
    },
    ("action", "name"),
    type_name="FailurePolicyRule",
)
_RETENTION = Record({"whenDeleted": Text(one_of=("Delete", "Retain"), default="Delete")})
_CLAIM_POLICY = Record(
    {"retentionPolicy": _RETENTION, "templates": Sequence(CLAIM_TEMPLATE, at_most=50)},
    rules=(_OWN_NAMESPACE,),
    type_name="VolumeClaimPolicy",
)


def jobset_spec(replicas: Whole) -> Record:
    """The shape of a JobSet's spec. A JobSet bounds its `replicas`, the copy inside a runtime does not."""
    fields: dict[str, Shape] = {
        "coordinator": Record(
            {"jobIndex": PLAIN_INT, "podIndex": PLAIN_INT, "replicatedJob": TEXT}, ("replicatedJob",), type_name="Coordinator"
        ),
        "failurePolicy": Record(
            {
                "maxRestarts": INT,
                "restartStrategy": Text(one_of=("Recreate", "BlockingRecreate", "InPlaceRestart"), default="Recreate"),
                "rules": Sequence(_FAILURE_RULE),
            },
            rules=(FIXED,),
            type_name="FailurePolicy",
        ),
        "managedBy": TEXT,
        "network": Record(
            {"enableDNSHostnames": FLAG, "publishNotReadyAddresses": FLAG, "subdomain": TEXT},
            rules=(FIXED,),
            type_name="Network",
        ),
        "replicatedJobs": Sequence(
            Record(
                {
                    "dependsOn": Sequence(_DEPENDENCY, at_most=5, keys=("name",), rules=(FIXED,)),
                    "groupName": Text(default="default"),
                    "name": TEXT,
                    "replicas": replicas,
                    "template": JOB_TEMPLATE,
                },
                ("name", "template"),
                type_name="ReplicatedJob",
            ),
            keys=("name",),
        ),
        "startupPolicy": Record(
            {"startupPolicyOrder": Text(one_of=("AnyOrder", "InOrder"))},
            ("startupPolicyOrder",),
            rules=(FIXED,),
            type_name="StartupPolicy",
        ),
        "successPolicy": Record(
            {"operator": Text(one_of=("All", "Any")), "targetReplicatedJobs": TEXTS},
            ("operator",),
            rules=(FIXED,),
            type_name="SuccessPolicy",
        ),
        "suspend": FLAG,
        "ttlSecondsAfterFinished": Whole(0),
        "volumeClaimPolicies": Sequence(_CLAIM_POLICY, at_most=50, rules=(FIXED,)),
    }
    return Record(fields, rules=(_ONE_ORDER,), type_name="JobSetSpec")


_RESTARTS = Sequence(INT, at_most=1024)
_JOB_STATUS = Record(
    {
        "active": INT,
        "failed": INT,
        "jobRestarts": _RESTARTS,
        "jobRestartsCountTowardsMax": _RESTARTS,
        "name": TEXT,
        "ready": INT,
        "succeeded": INT,
        "suspended": INT,
    },
    ("active", "failed", "name", "ready", "succeeded", "suspended"),
)
_STATUS = Record(
    {
        "conditions": Sequence(CONDITION, keys=("type",)),
        "currentInPlaceRestartAttempt": Whole(0),
        "previousInPlaceRestartAttempt": Whole(0),
        "replicatedJobsStatus": Sequence(_JOB_STATUS, keys=("name",)),
        "restarts": INT,
        "restartsCountTowardsMax": INT,
        "terminalState": TEXT,
    },
    type_name="JobSetStatus",
)


def kind_shape(spec: Shape, status: Shape | None = None, rules: tuple[Rule, ...] = ()) -> Record:
    """The shape of a whole custom resource around the shapes of its spec and status; its metadata has rules of its own."""
    fields = {"apiVersion": TEXT, "kind": TEXT, "metadata": ANYTHING, "spec": spec} | ({"status": status} if status else {})
    return Record(fields, rules=rules)


JOBSET = kind_shape(jobset_spec(Whole(0, default=1)), _STATUS)
