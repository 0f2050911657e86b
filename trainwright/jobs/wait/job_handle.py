"""Submission and waiting as steps of their own, with a handle between them: the waiting step needs nothing else."""

from __future__ import annotations

import logging
from dataclasses import replace

from pydantic import BaseModel, ConfigDict, ValidationError

from trainwright.api.errors import NotFound
from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import name_of, namespace_of, uid_of
from trainwright.cluster.protocol import Cluster
from trainwright.cluster.retrying import RetryingCluster
from trainwright.jobs.diagnosis.errors import TrainJobDeleted
from trainwright.jobs.logs.training_log import results_of
from trainwright.jobs.request.train_request import TrainRequest
from trainwright.jobs.state.pods import read_started_from
from trainwright.jobs.state.progress import progress_of
from trainwright.jobs.state.run_folder import folder_of_job
from trainwright.jobs.state.waiters import lease_seconds, waiter_notes
from trainwright.jobs.submit.adoption import resume_if_suspended_by_us, take_lease
from trainwright.jobs.submit.submission import Submission
from trainwright.jobs.submit.submit_or_adopt import submit_or_adopt
from trainwright.jobs.wait.event_printer import EventPrinter
from trainwright.jobs.wait.job_events import StartedFrom
from trainwright.jobs.wait.run_step import StepResult
from trainwright.jobs.wait.run_to_end import follow_to_end
from trainwright.jobs.wait.waiting import Waiting, restarts_of_request, waiter_options_of

log = logging.getLogger(__name__)


class JobHandle(BaseModel):
    """Names one TrainJob, and what its waiting step has to know. `mode` is the submission mode, `folder` that of the run on its
    workspace, `has_results` whether the program reports a result."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    namespace: str
    uid: str
    mode: str
    folder: str = ""
    has_results: bool = False
    restarts: int | None = None
    """How often pods may be started again, see `TrainRequest.restarts`; None: as often as the runtime says."""

    @classmethod
    def parse(cls, text: str) -> JobHandle:
        """Parse the JSON of a handle. Raises ValueError."""
        try:
            return cls.model_validate_json(text)
        except ValidationError:
            raise ValueError(f"{text[:200]!r} is not the handle of a TrainJob, as submit_train_job returns it") from None


def submit_step(submission: Submission) -> JobHandle:
    """Submit or adopt the TrainJob of this step; returns its handle. The lease of the step that is to wait for it begins.

    Raises the errors of `submit_or_adopt`.
    """
    request, identity = submission.request, submission.identity
    seconds = waiter_options_of(request, suspends_at_once=True).lease_seconds
    if not seconds:  # a job that nobody is to wait for: it may outlive the run
        submission = replace(submission, identity=replace(identity, submitter=replace(identity.submitter, waiting_pod="")))
    submitted = submit_or_adopt(submission, waiter_lease_seconds=seconds)
    trainjob = submitted.trainjob
    return JobHandle(
        name=name_of(trainjob),
        namespace=namespace_of(trainjob),
        uid=uid_of(trainjob),
        mode=str(submitted.cluster.mode),
        folder=folder_of_job(trainjob),
        has_results=request.func is not None or bool(request.code),
        restarts=restarts_of_request(request),
    )


def wait_step(
    cluster: Cluster,
    handle: JobHandle,
    options: TrainRequest,
    *,
    event_printer: EventPrinter | None = None,
    waiting_pod: str = "",
) -> StepResult:
    """Wait until the job has succeeded. Of the `options` those of waiting count: deadlines, logs, `on_cancel`, the lease.

    A job that an earlier cancellation suspended is resumed. It notes the `waiting_pod`, see `left_behind`. A preempted job fails:
    only the step that has its request could submit the next attempt. Raises TrainJobDeleted if the job no longer exists or was
    replaced, and the errors of `follow_to_end`.
    """
    retrying = RetryingCluster(cluster)
    try:
        trainjob = retrying.get(TRAINJOB, handle.name, handle.namespace)
    except NotFound:
        raise TrainJobDeleted(f"TrainJob {handle.namespace}/{handle.name} no longer exists") from None
    if uid_of(trainjob) != handle.uid:
        raise TrainJobDeleted(f"TrainJob {handle.namespace}/{handle.name} was deleted, and created again since")
    waiting = Waiting.of(options, event_printer)
    waiting = replace(waiting, settings=replace(waiting.settings, restarts=handle.restarts))
    seconds = lease_seconds(waiting.waiter.lease_seconds)
    notes = waiter_notes(options.ending.on_cancel, waiting_pod)
    trainjob = take_lease(retrying, resume_if_suspended_by_us(retrying, trainjob, notes=notes), seconds, notes)
    ended = follow_to_end(cluster, trainjob, waiting)
    printer = waiting.printer
    result = StepResult(
        handle.name,
        handle.namespace,
        dict((printer.progress or progress_of(ended)).metrics),
        results_of(cluster, ended) if handle.has_results else None,
        handle.folder,
        read_started_from(cluster, ended),
        printer.usage,
    )
    printer((StartedFrom(result.started_from),))
    return result
