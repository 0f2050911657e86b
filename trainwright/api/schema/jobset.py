"""Schema of a JobSet (jobset.x-k8s.io/v1alpha2), with the defaults and rules of its schema; also the template inside a runtime."""

from __future__ import annotations

from typing import Any

from trainwright.api.schema.conditions import CONDITION
from trainwright.api.schema.job import JOB_TEMPLATE
from trainwright.api.schema.types import (
    ANY_VALUE,
    BOOLEAN,
    INT,
    PLAIN_INT,
    STRING,
    STRINGS,
    Integer,
    ListOf,
    Rule,
    Schema,
    String,
    Struct,
    unchanged,
)
from trainwright.api.schema.volumes import CLAIM_TEMPLATE

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
_DEPENDENCY = Struct({"name": STRING, "status": String(one_of=("Ready", "Complete"))}, ("name", "status"))
FAILURE_ACTIONS = (
    "FailJobSet",
    "RestartJobSet",
    "RestartJobSetAndIgnoreMaxRestarts",
    "RestartJob",
    "RestartJobAndIgnoreMaxRestarts",
)
_FAILURE_RULE = Struct(
    {
        "action": String(one_of=FAILURE_ACTIONS),
        "name": STRING,
        "onJobFailureMessagePatterns": STRINGS,
        "onJobFailureReasons": STRINGS,
        "targetReplicatedJobs": STRINGS,
    },
    ("action", "name"),
    type_name="FailurePolicyRule",
)
_RETENTION = Struct({"whenDeleted": String(one_of=("Delete", "Retain"), default="Delete")})
_CLAIM_POLICY = Struct(
    {"retentionPolicy": _RETENTION, "templates": ListOf(CLAIM_TEMPLATE, at_most=50)},
    rules=(_OWN_NAMESPACE,),
    type_name="VolumeClaimPolicy",
)


def jobset_spec(replicas: Integer) -> Struct:
    """The schema of a JobSet's spec. `replicas` is bounded in a JobSet, but not inside a runtime."""
    fields: dict[str, Schema] = {
        "coordinator": Struct(
            {"jobIndex": PLAIN_INT, "podIndex": PLAIN_INT, "replicatedJob": STRING}, ("replicatedJob",), type_name="Coordinator"
        ),
        "failurePolicy": Struct(
            {
                "maxRestarts": INT,
                "restartStrategy": String(one_of=("Recreate", "BlockingRecreate", "InPlaceRestart"), default="Recreate"),
                "rules": ListOf(_FAILURE_RULE),
            },
            rules=(FIXED,),
            type_name="FailurePolicy",
        ),
        "managedBy": STRING,
        "network": Struct(
            {"enableDNSHostnames": BOOLEAN, "publishNotReadyAddresses": BOOLEAN, "subdomain": STRING},
            rules=(FIXED,),
            type_name="Network",
        ),
        "replicatedJobs": ListOf(
            Struct(
                {
                    "dependsOn": ListOf(_DEPENDENCY, at_most=5, keys=("name",), rules=(FIXED,)),
                    "groupName": String(default="default"),
                    "name": STRING,
                    "replicas": replicas,
                    "template": JOB_TEMPLATE,
                },
                ("name", "template"),
                type_name="ReplicatedJob",
            ),
            keys=("name",),
        ),
        "startupPolicy": Struct(
            {"startupPolicyOrder": String(one_of=("AnyOrder", "InOrder"))},
            ("startupPolicyOrder",),
            rules=(FIXED,),
            type_name="StartupPolicy",
        ),
        "successPolicy": Struct(
            {"operator": String(one_of=("All", "Any")), "targetReplicatedJobs": STRINGS},
            ("operator",),
            rules=(FIXED,),
            type_name="SuccessPolicy",
        ),
        "suspend": BOOLEAN,
        "ttlSecondsAfterFinished": Integer(0),
        "volumeClaimPolicies": ListOf(_CLAIM_POLICY, at_most=50, rules=(FIXED,)),
    }
    return Struct(fields, rules=(_ONE_ORDER,), type_name="JobSetSpec")


_RESTARTS = ListOf(INT, at_most=1024)
_JOB_STATUS = Struct(
    {
        "active": INT,
        "failed": INT,
        "jobRestarts": _RESTARTS,
        "jobRestartsCountTowardsMax": _RESTARTS,
        "name": STRING,
        "ready": INT,
        "succeeded": INT,
        "suspended": INT,
    },
    ("active", "failed", "name", "ready", "succeeded", "suspended"),
)
_STATUS = Struct(
    {
        "conditions": ListOf(CONDITION, keys=("type",)),
        "currentInPlaceRestartAttempt": Integer(0),
        "previousInPlaceRestartAttempt": Integer(0),
        "replicatedJobsStatus": ListOf(_JOB_STATUS, keys=("name",)),
        "restarts": INT,
        "restartsCountTowardsMax": INT,
        "terminalState": STRING,
    },
    type_name="JobSetStatus",
)


def kind_schema(spec: Schema, status: Schema | None = None, rules: tuple[Rule, ...] = ()) -> Struct:
    """The schema of a custom resource from those of its spec and status; its metadata is validated separately."""
    fields = {"apiVersion": STRING, "kind": STRING, "metadata": ANY_VALUE, "spec": spec} | ({"status": status} if status else {})
    return Struct(fields, rules=rules)


JOBSET = kind_schema(jobset_spec(Integer(0, default=1)), _STATUS)
