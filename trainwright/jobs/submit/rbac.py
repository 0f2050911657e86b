"""The API calls of a client of TrainJobs, the permissions that they need, and the impact of a missing one.

`trainwright doctor` checks every line of this table, and a test compares it with the calls that are made.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainwright.api.kinds import (
    CLAIM,
    CLUSTER_TRAINING_RUNTIME,
    CONFIG_MAP,
    EVENT,
    JOBSET,
    NODE,
    POD,
    SECRET,
    STORAGE_CLASS,
    TRAINING_RUNTIME,
    TRAINJOB,
    Kind,
)
from trainwright.cluster.permissions import Permission
from trainwright.submission.served_schema import DEFINITION


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

    def permission(self, namespace: str) -> Permission:
        subresource = f"/{self.subresource}" if self.subresource else ""
        return Permission(self.verb, f"{self.kind.resource}{subresource}", namespace if self.kind.namespaced else "")


_VOLUME, _CODE = "submit with a workspace", "submit with code"
_NO_CODE = "code cannot be submitted; it must be part of an image"
_NO_DELETION = "jobs cannot be deleted, only suspended, and a rejected duplicate stays until it is deleted manually"
CALLS = (
    ApiCall("create", TRAINJOB, ("submit",)),
    ApiCall("get", TRAINJOB, ("submit", "wait", "logs", "cancel")),
    ApiCall("list", TRAINJOB, ("submit", "wait")),
    ApiCall("watch", TRAINJOB, ("wait",)),
    ApiCall("patch", TRAINJOB, ("cancel", "resume")),
    ApiCall("delete", TRAINJOB, ("cancel", _VOLUME), _NO_DELETION),
    ApiCall("get", CLUSTER_TRAINING_RUNTIME, ("submit",)),
    ApiCall(
        "list",
        CLUSTER_TRAINING_RUNTIME,
        ("submit",),
        "the error for an unknown runtime does not list the existing ones",
    ),
    ApiCall("get", TRAINING_RUNTIME, ("submit",), "TrainingRuntimes of the namespace cannot be used"),
    ApiCall("list", TRAINING_RUNTIME, ("submit",), "the error for an unknown runtime does not list the existing ones"),
    ApiCall(
        "get",
        DEFINITION,
        ("submit",),
        "the version of Trainer is unknown: the API of Trainer 2.2 and later is assumed",
        name=TRAINJOB.resource,
    ),
    ApiCall("list", NODE, ("submit",), "pods that are too large for every node are not detected before submission"),
    ApiCall(
        "get", CLAIM, (_VOLUME,), "a workspace that does not exist, or that nodes cannot share, is not detected before submission"
    ),
    ApiCall("create", CLAIM, (_VOLUME,), "no claim can be created for a workspace; it must exist"),
    ApiCall("patch", CLAIM, (_VOLUME,), "a claim that was created for a job is not deleted with it"),
    ApiCall("list", STORAGE_CLASS, (_VOLUME,), "a missing StorageClass of a new claim is not detected before submission"),
    *(ApiCall(verb, CONFIG_MAP, (_CODE,), _NO_CODE) for verb in ("create", "get", "patch")),
    ApiCall("list", POD, ("logs", "cancel", "report"), "no logs; failure reports do not contain pods"),
    ApiCall("get", POD, ("logs",), "log streaming does not resume after a lost connection"),
    ApiCall("get", POD, ("logs", "report"), "no logs, and no last lines in failure reports", subresource="log"),
    ApiCall("get", JOBSET, ("cancel", "report"), "failure reports do not contain the JobSet's reason and restarts"),
    ApiCall("list", EVENT, ("report",), "failure reports do not contain events"),
    ApiCall("list", JOBSET, ("submit",), "jobs submitted as JobSets before Trainer was installed are not found"),
)
"""Calls in trainjob mode, in the order of a job's lifecycle."""
_OF_TRAINER = (TRAINJOB, TRAINING_RUNTIME, CLUSTER_TRAINING_RUNTIME, DEFINITION)
_NO_KEYS = "jobs of MPI and Flux runtimes cannot be submitted"
_NO_CONFIG = f"{_NO_KEYS}, and {_NO_CODE}"
JOBSET_MODE_CALLS = (
    ApiCall("create", JOBSET, ("submit",)),
    ApiCall("get", JOBSET, ("submit", "wait", "logs", "cancel", "report", "resume")),
    ApiCall("list", JOBSET, ("submit", "wait")),
    ApiCall("watch", JOBSET, ("wait",)),
    ApiCall("patch", JOBSET, ("cancel", "resume")),
    ApiCall("delete", JOBSET, ("cancel", _VOLUME), _NO_DELETION),
    *(ApiCall(verb, SECRET, ("submit",), _NO_KEYS) for verb in ("create", "get")),
    *(ApiCall(verb, CONFIG_MAP, ("submit", _CODE), _NO_CONFIG) for verb in ("create", "get")),
    ApiCall("patch", CONFIG_MAP, (_CODE,), _NO_CODE),
    *(call for call in CALLS if call.kind not in (*_OF_TRAINER, JOBSET, CONFIG_MAP)),
)
"""Calls in jobset mode, without Trainer's API."""
