"""The phase of a TrainJob, the same for the command line, components, operators and pages. Pure."""

from __future__ import annotations

import enum

from trainwright.api import names
from trainwright.api.conditions import is_true
from trainwright.api.objects import Obj, labels_of
from trainwright.api.verdict import verdict_of


class Phase(enum.StrEnum):
    Queued = "Queued"
    Starting = "Starting"
    Running = "Running"
    Restarting = "Restarting"
    Suspended = "Suspended"
    Succeeded = "Succeeded"
    Failed = "Failed"

    @property
    def is_final(self) -> bool:
        return self in (Phase.Succeeded, Phase.Failed)


def phase_of(trainjob: Obj, jobset: Obj | None = None) -> Phase:
    """Return the phase; a restart is distinguished from a start only with the JobSet.

    A job that its client has given up is Failed, whoever asks: see `verdict_of`.
    """
    if is_true(trainjob, "Complete"):
        return Phase.Succeeded
    if is_true(trainjob, "Failed") or verdict_of(trainjob) is not None:
        return Phase.Failed
    if trainjob["spec"].get("suspend"):
        return Phase.Queued if names.QUEUE_LABEL in labels_of(trainjob) else Phase.Suspended
    if jobset is not None and is_true(jobset, "RestartingJobSet"):
        return Phase.Restarting
    for entry in (trainjob.get("status") or {}).get("jobsStatus") or []:
        if entry.get("name") not in names.INITIALIZERS and entry.get("ready"):
            return Phase.Running
    return Phase.Starting
