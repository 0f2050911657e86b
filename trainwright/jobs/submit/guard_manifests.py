"""The Deployment of `trainwright guard`, which ends jobs that nobody waits for, with its account and the calls that it makes. Pure.

`trainwright rbac --guard` prints it, and the chart installs it.
"""

from __future__ import annotations

from trainwright.api.kinds import EVENT, JOBSET, LEASE, NAMESPACE, POD, TRAINJOB
from trainwright.api.objects import Obj
from trainwright.jobs.state.waiters import WORKFLOW
from trainwright.jobs.submit.rbac import ApiCall
from trainwright.submission.controller_lease import GUARD_LEASE, GUARD_NAMESPACE
from trainwright.submission.jobs_client import Mode

NAME = "trainwright-guard"
RESOURCES = {"requests": {"cpu": "10m", "memory": "100Mi"}, "limits": {"memory": "256Mi"}}
"""Measured with 1,000 jobs: 70 MiB with kubernetes 37, as in the image, 92 to 94 with kubernetes 30. With jobs and pods
of 1.4 MiB of labels, the largest there are, it took 232 MiB with kubernetes 30: tenants decide how large their objects are."""
_GUARD = ("guard",)
_NO_RUNS = "a job is left running until its lease expires, although its run has ended"
LEASE_CALLS = (
    ApiCall("create", LEASE, _GUARD),
    *(ApiCall(verb, LEASE, _GUARD, name=GUARD_LEASE) for verb in ("get", "update")),
)
"""In the namespace of its Lease. Permission to create cannot be restricted to a name."""
GUARD_HOME: Obj = {"apiVersion": "v1", "kind": NAMESPACE.kind, "metadata": {"name": GUARD_NAMESPACE}}
READERS = "system:serviceaccounts"
"""Who may read the Lease of a guard of all namespaces: its clients are service accounts of any."""


def guard_calls(mode: Mode) -> tuple[ApiCall, ...]:
    """Return the calls of a guard in the namespaces that it guards, without those for its Lease. Raises KeyError for another mode."""
    kinds = {Mode.trainjob: (TRAINJOB,), Mode.jobset: (JOBSET,), Mode.auto: (TRAINJOB, JOBSET)}[mode]
    return (
        *(ApiCall(verb, kind, _GUARD) for kind in kinds for verb in ("get", "list", "watch", "patch", "delete")),
        *(ApiCall(verb, WORKFLOW, _GUARD, _NO_RUNS) for verb in ("get", "list", "watch")),
        *(ApiCall(verb, POD, _GUARD, "an expired lease ends also a job whose step runs") for verb in ("list", "watch")),
        *(ApiCall(verb, EVENT, _GUARD, "only its log tells what it has done") for verb in ("create", "get", "patch")),
    )


def guard_manifests(namespace: str, mode: Mode, image: str) -> list[Obj]:
    """Return the account and the Deployment of a guard of a namespace; of all if it is empty, in `GUARD_HOME`."""
    home = namespace or GUARD_NAMESPACE
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": NAME, "namespace": home}}
    return [account, _deployment(home, [f"--namespace={namespace}"] if namespace else [], mode, image)]


def _deployment(namespace: str, arguments: list[str], mode: Mode, image: str) -> Obj:
    labels = {"app.kubernetes.io/name": NAME}
    container = {
        "name": "guard",
        "image": image,
        "command": ["trainwright", "guard"],
        "args": [*arguments, f"--submission-mode={mode}"],
        "env": [{"name": "MALLOC_ARENA_MAX", "value": "2"}],
        "resources": RESOURCES,
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    pod = {
        "serviceAccountName": NAME,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": NAME, "namespace": namespace, "labels": labels},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }
