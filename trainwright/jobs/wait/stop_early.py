"""Stops a trial of a sweep that is hopeless: its job is suspended with the reason, and whoever waits for it ends at once."""

from __future__ import annotations

import contextlib

from trainwright.api import names
from trainwright.api.errors import Conflict, NotFound
from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import Obj, is_deleting, name_of, namespace_of
from trainwright.api.phase import phase_of
from trainwright.cluster.protocol import Cluster
from trainwright.jobs.diagnosis.errors import StoppedEarly
from trainwright.jobs.state.attempts import versions_of
from trainwright.submission.suspension import early_stop_reason, suspension_mark


def stop_early(cluster: Cluster, trainjob: Obj, reason: str) -> bool:
    """Suspend a job that runs, and record why. Its pods end, and what it wrote stays.

    Submitting its step again does not resume it; `resume_job` does. Returns False if the job has ended, is suspended, or no longer
    exists. Raises ApiError, Conflict if it changes all the time.
    """
    for current in versions_of(cluster, trainjob, "stopped"):
        if phase_of(current).is_final or is_deleting(current) or current["spec"].get("suspend"):
            return False
        annotations = {names.STOPPED_EARLY_ANNOTATION: reason, **suspension_mark(current)}
        metadata = {"resourceVersion": current["metadata"]["resourceVersion"], "annotations": annotations}
        with contextlib.suppress(NotFound, Conflict):  # the next try finds out what it has become
            cluster.patch(TRAINJOB, name_of(current), {"spec": {"suspend": True}, "metadata": metadata}, namespace_of(current))
            return True
    return False


def raise_if_stopped_early(trainjob: Obj) -> None:
    """Raise StoppedEarly if the job was stopped early, and not resumed since."""
    if reason := early_stop_reason(trainjob):
        raise StoppedEarly(stopped_early_message(trainjob, reason), trainjob)


def stopped_early_message(trainjob: Obj, reason: str) -> str:
    """Return the message of the error."""
    return f"TrainJob {namespace_of(trainjob)}/{name_of(trainjob)} was stopped early: {reason}"
