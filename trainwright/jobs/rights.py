"""Every call that a client of TrainJobs makes, as the right that it needs: what a role must grant, and what is lost without it.

One table: `trainwright doctor` asks a cluster for each line of it, and a test compares it with the calls that are really made.
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
from trainwright.cluster.access import Right
from trainwright.cluster.served_schema import DEFINITION


@dataclass(frozen=True)
class Call:
    """One verb on one resource. `acts` need it; `without` says what is lost where a job does without, and is empty where none can."""

    verb: str
    kind: Kind
    acts: tuple[str, ...]
    without: str = ""
    sub: str = ""
    name: str = ""
    """Where only the object of that name is asked for."""

    def right(self, namespace: str) -> Right:
        sub = f"/{self.sub}" if self.sub else ""
        return Right(self.verb, f"{self.kind.resource}{sub}", namespace if self.kind.namespaced else "")


_VOLUME, _CODE = "submit with a workspace", "submit with code"
_NO_CODE = "no code can be submitted; it must come in an image"
_NO_DELETION = "a job cannot be deleted, only suspended, and one that must be withdrawn stays until it is deleted by hand"
CALLS = (
    Call("create", TRAINJOB, ("submit",)),
    Call("get", TRAINJOB, ("submit", "wait", "logs", "cancel")),
    Call("list", TRAINJOB, ("submit", "wait")),
    Call("watch", TRAINJOB, ("wait",)),
    Call("patch", TRAINJOB, ("cancel", "resume")),
    Call("delete", TRAINJOB, ("cancel", _VOLUME), _NO_DELETION),
    Call("get", CLUSTER_TRAINING_RUNTIME, ("submit",)),
    Call(
        "list",
        CLUSTER_TRAINING_RUNTIME,
        ("submit",),
        "a runtime that does not exist is refused without the names of those that do",
    ),
    Call("get", TRAINING_RUNTIME, ("submit",), "no TrainingRuntime of the namespace can be used"),
    Call("list", TRAINING_RUNTIME, ("submit",), "a runtime that does not exist is refused without the names of those that do"),
    Call(
        "get",
        DEFINITION,
        ("submit",),
        "the version of Trainer is not known: what Trainer 2.2 and later have is sent",
        name=TRAINJOB.resource,
    ),
    Call("list", NODE, ("submit",), "nobody says beforehand that a pod is too large for every node"),
    Call("get", CLAIM, (_VOLUME,), "nobody says beforehand that a workspace does not exist, or that its nodes cannot share it"),
    Call("create", CLAIM, (_VOLUME,), "no claim can be made for a workspace; it must exist"),
    Call("patch", CLAIM, (_VOLUME,), "a claim that was made for a job is not deleted with it"),
    Call("list", STORAGE_CLASS, (_VOLUME,), "nobody says beforehand that the class of a new claim does not exist"),
    *(Call(verb, CONFIG_MAP, (_CODE,), _NO_CODE) for verb in ("create", "get", "patch")),
    Call("list", POD, ("logs", "cancel", "report"), "no logs; a failed job is reported without its pods"),
    Call("get", POD, ("logs",), "a log whose connection breaks is not gone on with"),
    Call("get", POD, ("logs", "report"), "no logs, and no last lines in the report of a failure", sub="log"),
    Call("get", JOBSET, ("cancel", "report"), "a failed job is reported without its JobSet's reason and restarts"),
    Call("list", EVENT, ("report",), "a failed job is reported without its events"),
    Call("list", JOBSET, ("submit",), "a job that was submitted as a JobSet, before Trainer was there, is not found"),
)
"""In the order in which a job meets them, where TrainJobs are submitted."""
_OF_TRAINER = (TRAINJOB, TRAINING_RUNTIME, CLUSTER_TRAINING_RUNTIME, DEFINITION)
_NO_KEYS = "no job of a runtime for MPI or Flux can be submitted"
_NO_CONFIG = f"{_NO_KEYS}, and {_NO_CODE}"
JOBSET_MODE_CALLS = (
    Call("create", JOBSET, ("submit",)),
    Call("get", JOBSET, ("submit", "wait", "logs", "cancel", "report", "resume")),
    Call("list", JOBSET, ("submit", "wait")),
    Call("watch", JOBSET, ("wait",)),
    Call("patch", JOBSET, ("cancel", "resume")),
    Call("delete", JOBSET, ("cancel", _VOLUME), _NO_DELETION),
    *(Call(verb, SECRET, ("submit",), _NO_KEYS) for verb in ("create", "get")),
    *(Call(verb, CONFIG_MAP, ("submit", _CODE), _NO_CONFIG) for verb in ("create", "get")),
    Call("patch", CONFIG_MAP, (_CODE,), _NO_CODE),
    *(call for call in CALLS if call.kind not in (*_OF_TRAINER, JOBSET, CONFIG_MAP)),
)
"""The same where JobSets are submitted and Trainer's API is not served."""
