"""What a step submits, where, and as whom: made once, by the component, the operator or the command, and handed on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trainwright.cluster.protocol import Cluster
from trainwright.jobs.request.train_request import TrainRequest
from trainwright.jobs.state.identity import Identity
from trainwright.jobs.state.waiters import Workflow
from trainwright.jobs.submit.step_credentials import StepCredentials

LatestCheckpoint = Callable[[Identity], str]
"""Returns the URI of the latest export of what a step has trained in its folder, "" for none. A callback, because stores belong to a
higher layer."""


@dataclass(frozen=True)
class Submission:
    """The job of a step: its request, for the step with this identity, on a cluster and in a namespace."""

    cluster: Cluster
    request: TrainRequest
    identity: Identity
    namespace: str
    latest_checkpoint: LatestCheckpoint | None = None
    """With `resume` = auto a new job gets the export that it returns, for a volume without checkpoints."""
    workflow: Workflow | None = None
    """That of the pipeline, to which the job is tied, see `tie_to_workflow`."""
    credentials: StepCredentials | None = None
    """Written to a Secret that the job owns, and refers to where the request names none."""
