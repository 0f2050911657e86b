"""The service account of initializers that start data caches, and its rights. Pure.

The runtime `torch-distributed-with-cache` names it. Upstream's Role has no rule for TrainJobs, which the initializer reads.
"""

from __future__ import annotations

from collections.abc import Sequence

from trainwright.api.kinds import JOBSET, POD, RBAC, ROLE, ROLE_BINDING, SERVICE, SERVICE_ACCOUNT, TRAINJOB
from trainwright.api.objects import Obj

ACCOUNT = "kubeflow-trainer-cache-initializer"
RULES = (
    {"apiGroups": [TRAINJOB.group], "resources": [TRAINJOB.plural], "verbs": ["get"]},
    {"apiGroups": [JOBSET.group], "resources": [JOBSET.plural], "verbs": ["create", "get"]},
    {"apiGroups": [SERVICE.group], "resources": [SERVICE.plural], "verbs": ["create", "get"]},
    {"apiGroups": [POD.group], "resources": [POD.plural], "verbs": ["list"]},
)
CLUSTER_RULES = (
    *RULES,
    {"apiGroups": ["leaderworkerset.x-k8s.io"], "resources": ["leaderworkersets"], "verbs": ["create", "get", "list", "watch"]},
    {"apiGroups": [SERVICE_ACCOUNT.group], "resources": [SERVICE_ACCOUNT.plural], "verbs": ["create", "get", "delete"]},
)
"""With what Trainer's initializer needs besides: it makes a LeaderWorkerSet and a ServiceAccount."""


def account_objects(namespace: str, rules: Sequence[Obj] = RULES) -> list[Obj]:
    """Return the ServiceAccount, its Role with these rules and the binding of both, for TrainJobs in `namespace`."""
    metadata = {"name": ACCOUNT, "namespace": namespace}
    subject = {"kind": SERVICE_ACCOUNT.kind, **metadata}
    return [
        {"apiVersion": SERVICE_ACCOUNT.api_version, "kind": SERVICE_ACCOUNT.kind, "metadata": metadata},
        {"apiVersion": ROLE.api_version, "kind": ROLE.kind, "metadata": metadata, "rules": list(rules)},
        {
            "apiVersion": ROLE_BINDING.api_version,
            "kind": ROLE_BINDING.kind,
            "metadata": metadata,
            "roleRef": {"apiGroup": RBAC, "kind": ROLE.kind, "name": ACCOUNT},
            "subjects": [subject],
        },
    ]
