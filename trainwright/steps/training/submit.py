"""The TrainJob of a training step of Kubeflow Pipelines, from the parameters of its component: what is submitted, as whom, and where.

The components `train` and `submit_train_job` have the same parameters, of which each needs this first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from trainwright import submission
from trainwright.api.objects import uid_of
from trainwright.checkpoints.pointers import latest_export_lookup
from trainwright.evaluation.loss_curve import kept_history
from trainwright.jobs.diagnosis.errors import Cancelled, TrainJobError
from trainwright.jobs.request.groups import STEP_LEASE_SECONDS
from trainwright.jobs.request.task_config import NO_TASK, Task, with_task
from trainwright.jobs.request.train_request import TrainRequest
from trainwright.jobs.state.cancel import CancelPolicy
from trainwright.jobs.submit.submission import Submission
from trainwright.jobs.submit.submit_or_adopt import Submitted
from trainwright.jobs.wait.job_events import OnJobEvents
from trainwright.jobs.wait.run_step import JobHandle, StepResult, run_step, submit_step
from trainwright.jobs.wait.waiting import EventPrinter, Waiting
from trainwright.steps.ends.step_end import write_line
from trainwright.steps.phases import check_prepared_rows
from trainwright.steps.requests import EvaluateExport, Run
from trainwright.steps.training.own_step import ServerRetries, own_step, warn_without_exit_handler, warn_without_guard
from trainwright.steps.training.trials import Trial
from trainwright.tracking import TrackingTarget, tracked_run, tracking

J = TypeVar("J", TrainRequest, EvaluateExport)


@dataclass(frozen=True)
class TrainStep:
    """A training step, ready to be submitted.

    `server_retries` is what the server itself does after a failure.
    """

    submission: Submission
    server_retries: ServerRetries = ServerRetries.unknown
    workspace_path: str = ""
    """Where this step mounts the workspace, if it does: the metrics of the training are kept in the folder of the run."""

    def submit(self) -> JobHandle:
        """Submit or adopt the job. Raises the errors of `submit_or_adopt`."""
        return submit_step(self.submission)

    def run(
        self, observers: Sequence[OnJobEvents] = (), *, targets: Sequence[TrackingTarget] = (), folder: Path | None = None
    ) -> StepResult:
        """Submit or adopt the job, and wait until it has succeeded, with its progress and log in the log of this step.

        `observers` get its events, and the tracking `targets` its metrics; `folder` is for those without a server, see `tracking`.
        Raises the errors of `run_step`, with a note on what the server does about them.
        """
        request = self.submission.request
        with (
            tracking(tracked_run(self.submission.identity, request), targets, folder=folder, write=write_line) as tracker,
            kept_history(self.workspace_path) as history,
        ):

            def begin(submitted: Submitted) -> None:
                tracker.begin(uid_of(submitted.trainjob))
                history.begin(submitted.trainjob)

            every: Sequence[OnJobEvents] = (tracker, history, *observers)
            waiting = Waiting.of(request, EventPrinter(write_line), observers=every, on_submitted=begin)
            try:
                return run_step(self.submission, waiting)
            except TrainJobError as error:
                if self.server_retries and not isinstance(error, Cancelled):
                    error.add_note(self.server_retries.value)
                raise


def train_step_of(request: TrainRequest, run: Run, *, trial: Trial | None = None, task: Task = NO_TASK) -> TrainStep:
    """Return a training step as it was asked for, checked, and connect to its cluster.

    Args:
        request: The settings that the component was given.
        run: The run that the step is part of, with what its first step has found out; its settings are added.
        trial: A trial of a sweep, which is a job apart; its settings replace those of the same names.
        task: What the task of the step was given in the pipeline.

    Raises InvalidSettings, InitializerError (rows for another trainer), NoCluster, ApiError.
    """
    request = run.training_with(request)
    if trial is not None:
        request = request.having(settings={**request.settings, **trial.settings})
    request = TrainRequest.parse(with_task(with_step_lease(request), task))  # the variables of the task are looked at, too
    check_prepared_rows(request, run.workspace_path)
    cluster = submission.connect_for_jobs(mode=request.placement.submission_mode or run.submission_mode)
    own = own_step(cluster)
    space = run.namespace or request.namespace or cluster.default_namespace
    if request.ending.on_cancel != CancelPolicy.keep and not warn_without_guard(cluster, space):
        warn_without_exit_handler(cluster, own)
    identity = own.identity(run.run_id, "train", trial.index if trial is not None else -1)
    latest = latest_export_lookup(request.export_uri) if request.export_uri else None
    workflow = own.workflow if request.ending.tie_to_run else None
    return TrainStep(Submission(cluster, request, identity, space, latest, workflow), own.retries, run.workspace_path)


def with_step_lease(request: J) -> J:
    """Return the request with the lease of a step that waits in a pod, unless it has another."""
    if "waiter_lease_seconds" in request.ending.given:
        return request
    return request.having(ending=request.ending.having(waiter_lease_seconds=STEP_LEASE_SECONDS))
