"""The API calls of a client of TrainJobs, the permissions that they need, and the impact of a missing one.

`trainwright doctor` checks every line of this table, `trainwright rbac` prints manifests that grant them, and tests compare it with
the calls that are made.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainwright.api.kinds import (
    CLAIM,
    CLUSTER_TRAINING_RUNTIME,
    CONFIG_MAP,
    EVENT,
    JOB,
    JOBSET,
    LEASE,
    NODE,
    POD,
    SECRET,
    STORAGE_CLASS,
    TRAINING_RUNTIME,
    TRAINJOB,
    Kind,
)
from trainwright.api.objects import Obj
from trainwright.cluster.refusals import Permission
from trainwright.jobs.state.kubernetes_events import LOCAL_QUEUE, WORKLOADS
from trainwright.jobs.state.waiters import WORKFLOW
from trainwright.submission.controller_lease import GUARD_LEASE, UPSTREAM_LEASE, UPSTREAM_NAMESPACE
from trainwright.submission.jobs_client import DEFINITION, Mode

WORKLOAD = WORKLOADS[0]


@dataclass(frozen=True)
class ApiCall:
    """One verb on one resource. `operations` need it; `impact` describes running without it, and is empty if it is required."""

    verb: str
    kind: Kind
    operations: tuple[str, ...]
    impact: str = ""
    subresource: str = ""
    name: str = ""
    """Set if only the object with this name is read."""
    namespace: str = ""
    """Set if the object is in this namespace, whatever the namespace of the job."""
    is_granted: bool = True
    """False for what service accounts of jobs usually may not do: it is not part of the manifests."""
    is_advised: bool = True
    """False for what should not be granted for this purpose alone: a missing permission is not reported."""

    @property
    def resource(self) -> str:
        """The resource as a rule of RBAC names it: `PLURAL[/SUBRESOURCE]`."""
        return f"{self.kind.plural}/{self.subresource}" if self.subresource else self.kind.plural

    def permission(self, namespace: str) -> Permission:
        """Return the permission that the call needs for a job in `namespace`."""
        subresource = f"/{self.subresource}" if self.subresource else ""
        where = (self.namespace or namespace) if self.kind.namespaced else ""
        return Permission(self.verb, f"{self.kind.resource}{subresource}", where)

    def rule(self) -> Obj:
        """Return the rule of a Role or ClusterRole that grants the call."""
        named: Obj = {"resourceNames": [self.name]} if self.name else {}
        return {"apiGroups": [self.kind.group], "resources": [self.resource], **named, "verbs": [self.verb]}


_VOLUME, _CODE = "submit with a workspace", "submit with code"
_NO_CODE = "code cannot be submitted; it must be part of an image"
_NO_DELETION = "jobs cannot be deleted, only suspended, and a rejected duplicate stays until it is deleted manually"
READ_LEASE = ApiCall(
    "get",
    LEASE,
    ("submit",),
    "a stopped Trainer is not detected: jobs would be submitted as TrainJobs and not start",
    name=UPSTREAM_LEASE,
    namespace=UPSTREAM_NAMESPACE,
)
READ_GUARD = ApiCall(
    "get", LEASE, ("wait",), "a step does not warn that nothing on the cluster ends its job if it is killed", name=GUARD_LEASE
)
READ_CLAIM = ApiCall(
    "get", CLAIM, (_VOLUME,), "a workspace that does not exist, or that nodes cannot share, is not detected before submission"
)
LIST_LOCAL_QUEUES = ApiCall(
    "list",
    LOCAL_QUEUE,
    ("submit", "wait"),
    "a queue that does not exist is not detected, and the job waits until its queue deadline",
)
LIST_RUNTIMES = tuple(
    ApiCall("list", kind, ("submit",), "the error for an unknown runtime does not list the existing ones")
    for kind in (TRAINING_RUNTIME, CLUSTER_TRAINING_RUNTIME)
)
CALLS = (
    ApiCall("create", TRAINJOB, ("submit",)),
    ApiCall("get", TRAINJOB, ("submit", "wait", "logs", "cancel")),
    ApiCall("list", TRAINJOB, ("submit", "wait")),
    ApiCall("watch", TRAINJOB, ("wait",)),
    ApiCall("patch", TRAINJOB, ("cancel", "resume")),
    ApiCall("delete", TRAINJOB, ("cancel", _VOLUME), _NO_DELETION),
    ApiCall("get", CLUSTER_TRAINING_RUNTIME, ("submit",)),
    ApiCall("get", TRAINING_RUNTIME, ("submit",), "TrainingRuntimes of the namespace cannot be used"),
    *LIST_RUNTIMES,
    ApiCall(
        "get",
        DEFINITION,
        ("submit",),
        "the version of Trainer is unknown: the API of Trainer 2.2 and later is assumed",
        name=TRAINJOB.resource,
    ),
    READ_LEASE,
    ApiCall(
        "list",
        NODE,
        ("submit",),
        "pods that are too large for every node are not detected before submission",
        is_granted=False,
    ),
    READ_CLAIM,
    ApiCall("create", CLAIM, (_VOLUME,), "no claim can be created for a workspace; it must exist"),
    ApiCall("patch", CLAIM, (_VOLUME,), "a claim that was created for a job is not deleted with it"),
    ApiCall("list", STORAGE_CLASS, (_VOLUME,), "a missing StorageClass of a new claim is not detected before submission"),
    *(ApiCall(verb, CONFIG_MAP, (_CODE,), _NO_CODE) for verb in ("create", "get", "patch")),
    ApiCall(
        "list",
        POD,
        ("submit", "wait", "logs", "cancel", "report"),
        "no logs; failure reports do not contain pods; a job that is resumed does not wait for the end of its earlier pods",
    ),
    ApiCall("watch", POD, ("wait",), "clients that wait list pods every few seconds"),
    ApiCall("get", POD, ("logs",), "log streaming does not resume after a lost connection"),
    ApiCall("get", POD, ("logs", "report"), "no logs, and no last lines in failure reports", subresource="log"),
    ApiCall(
        "get",
        JOBSET,
        ("submit", "wait", "cancel", "report"),
        "failure reports do not contain the JobSet's reason and restarts, and a training of which a part starts counts as started",
    ),
    ApiCall("list", EVENT, ("wait", "report"), "waits and failure reports do not contain events"),
    ApiCall("create", EVENT, ("wait",), "`kubectl describe` does not show why a job was given up"),
    ApiCall("list", JOB, ("wait", "report"), "failure reports do not contain the reasons of Jobs"),
    ApiCall("list", WORKLOAD, ("wait",), "the reason why a job is queued is known from events only"),
    LIST_LOCAL_QUEUES,
    READ_GUARD,
    ApiCall("list", JOBSET, ("submit",), "jobs submitted as JobSets before Trainer was installed are not found"),
)
"""Calls in trainjob mode, in the order of a job's lifecycle."""
_OF_TRAINER = (TRAINJOB, TRAINING_RUNTIME, CLUSTER_TRAINING_RUNTIME, DEFINITION, LEASE)
_NO_KEYS = "jobs of MPI and Flux runtimes cannot be submitted"
_NO_CONFIG = f"{_NO_KEYS}, and {_NO_CODE}"
CREATE_KEYS = ApiCall("create", SECRET, ("submit",), _NO_KEYS, is_granted=False)
"""Granted by `trainwright rbac --mpi-flux` only."""
CREDENTIALS_CALLS = tuple(
    ApiCall(verb, SECRET, ("submit with credentials",), impact, is_granted=False, is_advised=False)
    for verb, impact in (
        ("create", "credentials of a connection cannot be used on the cluster; a Secret must exist there"),
        ("patch", "credentials of a connection cannot be used on the cluster; a Secret must exist there"),
        ("delete", "the Secret with credentials of a connection stays until its job is deleted"),
    )
)
"""Granted by `trainwright rbac --credentials` only. Secrets are written, never read."""
READ_WORKFLOW = ApiCall(
    "get",
    WORKFLOW,
    ("submit in a pipeline",),
    "a step does not warn of a run without an exit handler",
    is_granted=False,
    is_advised=False,
)
"""Granted by `trainwright rbac --for kfp` only: the workflow of its own run, which names its exit handler."""
READ_KEYS = ApiCall(
    "get",
    SECRET,
    ("submit",),
    "a Secret that an earlier job of the same name has left is taken for the job's",
    is_granted=False,
    is_advised=False,
)
"""Read only if a Secret of this name exists, and if this is permitted: it would allow to read any Secret."""
BESIDE_TRAINER_CALLS = (
    ApiCall("get", TRAINJOB, ("submit",), "a TrainJob of the same name is not detected"),
    *(
        ApiCall("get", kind, ("submit",), "runtimes of the cluster cannot be used, only bundled ones")
        for kind in (CLUSTER_TRAINING_RUNTIME, TRAINING_RUNTIME)
    ),
    *LIST_RUNTIMES,
)
"""Calls in jobset mode where the cluster serves Trainer's API too."""
JOBSET_MODE_CALLS = (
    ApiCall("create", JOBSET, ("submit",)),
    ApiCall("get", JOBSET, ("submit", "wait", "logs", "cancel", "report", "resume")),
    ApiCall("list", JOBSET, ("submit", "wait")),
    ApiCall("watch", JOBSET, ("wait",)),
    ApiCall("patch", JOBSET, ("cancel", "resume")),
    ApiCall("delete", JOBSET, ("cancel", _VOLUME), _NO_DELETION),
    CREATE_KEYS,
    READ_KEYS,
    *(ApiCall(verb, CONFIG_MAP, ("submit", _CODE), _NO_CONFIG) for verb in ("create", "get")),
    ApiCall("patch", CONFIG_MAP, (_CODE,), _NO_CODE),
    *(call for call in CALLS if call.kind not in (*_OF_TRAINER, JOBSET, CONFIG_MAP)),
    READ_GUARD,
    *BESIDE_TRAINER_CALLS,
)
"""Calls in jobset mode."""
CALLS_OF = {
    Mode.trainjob: CALLS,
    Mode.jobset: JOBSET_MODE_CALLS,
    Mode.auto: (*CALLS, *(call for call in JOBSET_MODE_CALLS if call not in CALLS)),
}
"""Calls in each mode; auto may choose either."""
