"""Exports the checkpoints of a run while its training goes on, so that a lost volume or a late failure costs hours and not days."""

from __future__ import annotations

import logging
from typing import Any

from trainwright.api.errors import NotFound
from trainwright.api.kinds import TRAINJOB
from trainwright.api.phase import phase_of
from trainwright.cluster.protocol import Cluster
from trainwright.cluster.retrying import RetryingCluster
from trainwright.jobs.diagnosis.errors import Cancelled
from trainwright.jobs.wait.give_up import stop_on_signals
from trainwright.steps.requests import ExportBeside, ExportCheckpoint, StepRun
from trainwright.steps.workspace_steps import WorkspaceSteps

log = logging.getLogger(__name__)
POLL_SECONDS = 15.0
"""How often the job is asked for its phase."""


def export_beside(
    cluster: Cluster,
    trainjob: str,
    namespace: str,
    steps: WorkspaceSteps,
    request: ExportCheckpoint,
    run: StepRun,
    *,
    every_seconds: float,
    poll_seconds: float = POLL_SECONDS,
) -> dict[str, Any]:
    """Export the newest complete checkpoint every `every_seconds` until the TrainJob has ended, and then the last one.

    Returns the result of `request` then. A failed job's last checkpoint is exported, too. A
    job that does not exist (any more) has ended. Raises Cancelled after a signal, and the errors of the step.
    """
    client, looks, waited = RetryingCluster(cluster), 0, 0.0
    while not _has_ended(client, trainjob, namespace):
        with stop_on_signals() as stop:  # not during an export, which ends as the orchestrator's other tasks do
            if stop.wait(poll_seconds):
                raise Cancelled(f"the export beside TrainJob {trainjob} was ended; what it has exported stays")
        waited += poll_seconds
        if waited < every_seconds:  # the job is asked more often than is exported, to see its end soon
            continue
        waited, looks = 0.0, looks + 1
        if exported := steps(ExportBeside(**request.by_name(), look=looks), run):
            log.info("event=exported_beside trainjob=%s step=%s uri=%s", trainjob, exported["step"], exported["uri"])
    return steps(request, run)


def _has_ended(cluster: Cluster, trainjob: str, namespace: str) -> bool:
    try:
        return phase_of(cluster.get(TRAINJOB, trainjob, namespace)).is_final
    except NotFound:  # deleted: no further checkpoint comes
        return True
