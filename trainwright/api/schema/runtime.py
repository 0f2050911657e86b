"""Schema of TrainingRuntime and ClusterTrainingRuntime (trainer.kubeflow.org/v1alpha1, Trainer 2.3 and later)."""

from __future__ import annotations

from typing import Any

from trainwright.api.names import NODE
from trainwright.api.schema.jobset import jobset_spec, kind_schema
from trainwright.api.schema.references import TEMPLATE_METADATA
from trainwright.api.schema.types import INT, Boolean, Integer, ListOf, Rule, String, Struct

POLICIES = ("torch", "mpi", "jax", "xgboost", "flux")


def _at_most_one(policy: Any) -> bool:
    return sum(name in policy for name in POLICIES) <= 1


def at_least_one(message: str) -> Rule:
    """A rule: the number is positive."""
    return Rule("self >= 1", message, holds=lambda number: bool(number >= 1))


_ONE_POLICY = Rule(
    "[" + ", ".join(f"has(self.{name})" for name in POLICIES) + "].filter(given, given).size() <= 1",
    "Only one of the policy can be configured",
    holds=_at_most_one,
)
_NOT_NODE = Rule(
    f"!('{NODE}' in self)",
    "containerNames must not include the main node container because PET_* envs are always injected into it",
    holds=lambda names: NODE not in names,
)
_TARGET = Struct(
    {
        "containerNames": ListOf(String(at_most=63), at_least=1, at_most=8, distinct=True, rules=(_NOT_NODE,)),
        "jobName": String(1, 253),
    },
    ("containerNames", "jobName"),
)
_ML_POLICY = Struct(
    {
        "flux": Struct(
            {"numProcPerNode": Integer(default=1, rules=(at_least_one("NumProcPerNode in fluxPolicy must be >= 1"),))}
        ),
        "jax": Struct(),
        "mpi": Struct(
            {
                "mpiImplementation": String(one_of=("OpenMPI", ""), default="OpenMPI"),
                "numProcPerNode": Integer(default=1, rules=(at_least_one("NumProcPerNode in mpiPolicy must be >= 1"),)),
                "runLauncherAsNode": Boolean(default=False),
                "sshAuthMountPath": String(at_most=4096, default="/root/.ssh"),
            }
        ),
        "numNodes": INT,
        "torch": Struct({"envInjection": Struct({"targets": ListOf(_TARGET, at_most=16, keys=("jobName",))})}),
        "xgboost": Struct(),
    },
    rules=(_ONE_POLICY,),
)
_TOPOLOGY = Struct({"highestTierAllowed": Integer(bits=0, default=1), "mode": String(one_of=("hard", "soft"), default="hard")})
_POD_GROUP_POLICY = Struct(
    {
        "coscheduling": Struct({"scheduleTimeoutSeconds": Integer(default=60)}),
        "volcano": Struct({"networkTopology": _TOPOLOGY}),
    }
)
_TEMPLATE = Struct({"metadata": TEMPLATE_METADATA, "spec": jobset_spec(Integer(default=1))}, at_least_fields=1)
RUNTIME = kind_schema(
    Struct({"mlPolicy": _ML_POLICY, "podGroupPolicy": _POD_GROUP_POLICY, "template": _TEMPLATE}, at_least_fields=1)
)
