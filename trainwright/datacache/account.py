"""The service account of initializers that start data caches, and its rights. Pure.

The runtime `torch-distributed-with-cache` names it. Upstream's Role has no rule for TrainJobs, which the initializer reads.
"""

from __future__ import annotations

from trainwright.api.kinds import JOBSET, POD, RBAC, ROLE, ROLE_BINDING, SERVICE, SERVICE_ACCOUNT, TRAINJOB
from trainwright.api.objects import Obj

ACCOUNT = "kubeflow-trainer-cache-initializer"


def account_objects(namespace: str) -> list[Obj]:
    """Return the ServiceAccount, its Role and the binding of both, for TrainJobs in `namespace`."""
    metadata = {"name": ACCOUNT, "namespace": namespace}
    rules = [
        {"apiGroups": [TRAINJOB.group], "resources": [TRAINJOB.plural], "verbs": ["get"]},
        {"apiGroups": [JOBSET.group], "resources": [JOBSET.plural], "verbs": ["create", "get"]},
        {"apiGroups": [SERVICE.group], "resources": [SERVICE.plural], "verbs": ["create", "get"]},
        {"apiGroups": [POD.group], "resources": [POD.plural], "verbs": ["list"]},
    ]
    subject = {"kind": SERVICE_ACCOUNT.kind, **metadata}
    return [
        {"apiVersion": SERVICE_ACCOUNT.api_version, "kind": SERVICE_ACCOUNT.kind, "metadata": metadata},
        {"apiVersion": ROLE.api_version, "kind": ROLE.kind, "metadata": metadata, "rules": rules},
        {
            "apiVersion": ROLE_BINDING.api_version,
            "kind": ROLE_BINDING.kind,
            "metadata": metadata,
            "roleRef": {"apiGroup": RBAC, "kind": ROLE.kind, "name": ACCOUNT},
            "subjects": [subject],
        },
    ]
