"""The TrainJob of a training step of Kubeflow Pipelines, from the parameters of its component: what is submitted, as whom, and where.

The components `train` and `submit_train_job` have the same parameters, of which each needs this first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainwright import submission
from trainwright.api.objects import uid_of
from trainwright.checkpoints.resume_source import latest_export_lookup
from trainwright.evaluation.metric_history import kept_history
from trainwright.jobs.diagnosis.errors import Cancelled, TrainJobError
from trainwright.jobs.request.more_settings import with_more
from trainwright.jobs.request.settings_table import TABLE
from trainwright.jobs.request.task_config import with_task_config
from trainwright.jobs.request.train_request import TrainRequest
from trainwright.jobs.request.typed_parameters import typed_parameters
from trainwright.jobs.state.cancel import CancelPolicy
from trainwright.jobs.submit.submission import Submission
from trainwright.jobs.submit.submit_or_adopt import Submitted
from trainwright.jobs.wait.event_printer import EventPrinter
from trainwright.jobs.wait.job_events import OnJobEvents
from trainwright.jobs.wait.job_handle import JobHandle, submit_step
from trainwright.jobs.wait.run_step import StepResult, run_step
from trainwright.jobs.wait.waiting import Waiting
from trainwright.steps.exit_handlers import warn_without_exit_handler, warn_without_guard
from trainwright.steps.own_step import own_step
from trainwright.steps.row_trainer import check_prepared_rows
from trainwright.steps.server_retries import ServerRetries
from trainwright.steps.step_end import write_line
from trainwright.steps.trials import Trial
from trainwright.tracking import TrackingTarget, tracked_run, tracking


@dataclass(frozen=True)
class TrainStep:
    """A training step, ready to be submitted.

    A failed job is submitted again up to `job_retries` times, see `may_retry`; `server_retries` is what the server does itself.
    """

    submission: Submission
    job_retries: int = 0
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
            printer, retries = EventPrinter(write_line), self.job_retries
            waiting = Waiting.of(request, printer, observers=every, on_submitted=begin, job_retries=retries)
            try:
                return run_step(self.submission, waiting)
            except TrainJobError as error:
                if self.server_retries and not isinstance(error, Cancelled):
                    error.add_note(self.server_retries.value)
                raise


def train_step_of(
    run_id: str,
    settings: Mapping[str, Any],
    *,
    more: Any = None,
    namespace: str = "",
    submission_mode: str = "",
    tie_to_run: bool = True,
    job_retries: int = 0,
    task_config: Any = None,
    task_settings: Mapping[str, Any] | None = None,
    tracking: Sequence[str] = (),
    workspace_path: str = "",
    trial: Trial | None = None,
) -> TrainStep:
    """Return the training step with the settings that a component was given, checked, and connect to its cluster.

    `more` are settings that came as one structure. With `tie_to_run` the job belongs to the workflow of the pipeline. `task_config`,
    `task_settings`, `tracking` and `workspace_path` are what its task in the pipeline was given, see `with_task_config`. A `trial` of
    a sweep is a job apart, and its settings replace those of the same names.
    Raises ValueError, InitializerError (rows for another trainer), NoCluster, ApiError.
    """
    defaults = {"job_retries": 0, **{name: row.default for name, row in TABLE.items()}}
    settings = typed_parameters(with_more({"job_retries": job_retries, **settings}, more, defaults))
    job_retries = int(settings.pop("job_retries"))
    if trial is not None:
        settings = {**settings, "settings": {**settings["settings"], **trial.settings}}
    if job_retries < 0:
        raise ValueError(f"job_retries: {job_retries} must not be negative")
    of_step = {"task_settings": task_settings or {}, "tracking": tracking, "workspace_path": workspace_path}
    request = TrainRequest.from_parameters(with_task_config({**settings, **of_step}, task_config))
    check_prepared_rows(request, workspace_path)
    cluster = submission.connect_for_jobs(mode=submission_mode)
    own = own_step(cluster)
    space = namespace or request.namespace or cluster.default_namespace
    if request.on_cancel != CancelPolicy.keep and not warn_without_guard(cluster, space):
        warn_without_exit_handler(cluster, own)
    identity = own.identity(run_id, "train", trial.index if trial is not None else -1)
    latest = latest_export_lookup(request.export_uri) if request.export_uri else None
    workflow = own.workflow if tie_to_run else None
    return TrainStep(Submission(cluster, request, identity, space, latest, workflow), job_retries, own.retries, workspace_path)
