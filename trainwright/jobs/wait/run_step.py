"""Runs a training step from its request to its result in one call, for KFP components, Airflow tasks and programs; or submits and
waits in two steps, with a handle between them that has all that the second one needs.

When the wait ends early, because of a signal, a deadline or an error, the job is cancelled, so that nothing keeps running
unwatched.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from trainwright.api.errors import ApiError, NotFound
from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import Obj, name_of, namespace_of, uid_of
from trainwright.api.phase import Phase, phase_of
from trainwright.cluster.protocol import Cluster
from trainwright.cluster.retrying import RetryingCluster
from trainwright.jobs.diagnosis.errors import (
    Cancelled,
    CannotStart,
    Diverged,
    Preempted,
    StoppedEarly,
    TrainJobDeadline,
    TrainJobDeleted,
    TrainJobError,
    TrainJobFailed,
)
from trainwright.jobs.diagnosis.resubmission import wait_to_resume, wait_to_retry
from trainwright.jobs.logs.training_log import results_of
from trainwright.jobs.request.train_request import TrainRequest
from trainwright.jobs.state.cancel import CancelOutcome
from trainwright.jobs.state.deadline_timer import Deadlines
from trainwright.jobs.state.pods import read_started_from
from trainwright.jobs.state.progress import progress_of
from trainwright.jobs.state.run_folder import folder_of_job
from trainwright.jobs.state.usage import NO_USAGE, Usage, saved_hours
from trainwright.jobs.state.waiters import lease_seconds, waiter_notes
from trainwright.jobs.submit.adoption import resume_if_suspended_by_us, take_lease
from trainwright.jobs.submit.submission import Submission, credentials_until_end
from trainwright.jobs.submit.submit_or_adopt import Submitted, submit_or_adopt
from trainwright.jobs.wait.follow_job import wait_for
from trainwright.jobs.wait.give_up import StopEvent, cancel_unwatched_job, stop_failing_job, stop_on_signals
from trainwright.jobs.wait.job_events import StartedFrom
from trainwright.jobs.wait.job_observer import WaitSettings
from trainwright.jobs.wait.keep_lease import Waiter
from trainwright.jobs.wait.waiting import EventPrinter, Waiting, restarts_of_request, waiter_options_of

log = logging.getLogger(__name__)


def run_step(submission: Submission, waiting: Waiting | None = None) -> StepResult:
    """Submit or adopt the TrainJob of this step and wait until it has succeeded, by default as its request says.

    Raises the errors of `run_to_end`.
    """
    waiting = waiting or Waiting.of(submission.request)
    trainjob = run_to_end(submission, waiting)
    printer = waiting.printer
    metrics = dict((printer.progress or progress_of(trainjob)).metrics)
    result = replace(result_of(submission.cluster, trainjob, submission.request, metrics), usage=printer.usage)
    printer((StartedFrom(result.started_from),))
    return result


@dataclass(frozen=True)
class StepResult:
    """`metrics` are the last values that the training reported, `results` its return value or results.json (or None),
    `folder` the run's folder on the workspace, empty without one, `started_from` what the training started from: nothing, a
    checkpoint of its own, an export and whose, or why that is not known; empty for a job that has not ended. `usage` is what
    the attempts used that were awaited here."""

    trainjob: str
    namespace: str
    metrics: dict[str, str] = field(default_factory=dict)
    results: Any = None
    folder: str = ""
    started_from: str = ""
    usage: Usage = NO_USAGE

    @property
    def saved_hours(self) -> float:
        """Hours of training that need not be repeated, because the job resumed."""
        return saved_hours(self.started_from)

    def usage_as_object(self) -> dict[str, Any]:
        """Return `usage` and `saved_hours` as a JSON object; empty if nothing is known."""
        saved = {"saved_hours": self.saved_hours} if self.saved_hours else {}
        return {**(self.usage.as_dict() if self.usage != NO_USAGE else {}), **saved}

    def results_as_object(self) -> dict[str, Any]:
        """Return `results` as an object: any other value under the key `value`, None as an empty object."""
        if self.results is None or isinstance(self.results, dict):
            return self.results or {}
        return {"value": self.results}

    def as_dict(self) -> dict[str, Any]:
        return {
            "trainjob": self.trainjob,
            "namespace": self.namespace,
            "metrics": self.metrics,
            "results": self.results,
            "folder": self.folder,
            "started_from": self.started_from,
            "usage": self.usage_as_object(),
        }


def result_of(cluster: Cluster, trainjob: Obj, request: TrainRequest, metrics: dict[str, str] | None = None) -> StepResult:
    """Return the result of a job that has succeeded; only a job that runs a function or code has `results`."""
    has_launcher = request.func is not None or bool(request.code)
    return StepResult(
        name_of(trainjob),
        namespace_of(trainjob),
        metrics if metrics is not None else dict(progress_of(trainjob).metrics),
        results_of(cluster, trainjob) if has_launcher else None,
        folder_of_job(trainjob),
        read_started_from(cluster, trainjob),
    )


def run_to_end(submission: Submission, waiting: Waiting) -> Obj:
    """Submit or adopt the TrainJob of this step and wait for it; returns it when it has succeeded.

    After a preemption the next attempt is submitted and awaited, up to `preemption_budget` times for the step, and after another
    failure up to `job_retries` times, see `may_retry`; the deadlines apply to each attempt separately. The Secret with the credentials
    is deleted when the job has ended.
    Raises Cancelled, TrainJobFailed with a report, Diverged, TrainJobDeadline, TrainJobDeleted, StoppedEarly, and the errors of
    `submit_or_adopt`.
    """
    place = (submission.cluster, submission.identity, submission.namespace)
    with stop_on_signals() as stop, credentials_until_end(*place, submission.credentials):

        def submit() -> Submitted:
            submitted = submit_or_adopt(submission, stop=stop, waiter_lease_seconds=waiting.waiter.lease_seconds)
            if waiting.on_submitted is not None:
                waiting.on_submitted(submitted)
            return submitted

        return _run_attempts(Attempt.of(submit(), waiting), submit, waiting, stop)


def _run_attempts(attempt: Attempt, resubmit: Callable[[], Submitted] | None, waiting: Waiting, stop: StopEvent) -> Obj:
    """Wait for one attempt after another while they are preempted, or fail. The budgets, stored on the cluster, bound the loop."""
    while True:
        try:
            return _wait_for_attempt(attempt, waiting, stop)
        except Preempted as error:
            if resubmit is None or not waiting.preemption_budget:  # without the request or a budget there is no next attempt
                raise
            if not wait_to_resume(attempt.cluster, error, waiting.preemption_budget, stop):
                raise _not_resubmitted(error, "was preempted") from error
        except TrainJobFailed as error:
            if resubmit is None or not waiting.job_retries:  # as for preemptions
                raise
            if not wait_to_retry(attempt.cluster, error, waiting.job_retries, stop):
                raise _not_resubmitted(error, "failed") from error
        attempt = Attempt.of(resubmit(), waiting)


def _wait_for_attempt(attempt: Attempt, waiting: Waiting, stop: StopEvent) -> Obj:
    with Waiter(attempt.cluster, attempt.trainjob, waiting.waiter) as waiter:
        if waiting.waiter.suspends_at_once:
            stop.at_once = waiter.suspend_now
            if stop.is_set():  # while the job was being submitted
                waiter.suspend_now()
        try:
            return _wait_or_cancel(attempt, waiting, waiter, stop)
        finally:
            stop.at_once = None


def _wait_or_cancel(attempt: Attempt, waiting: Waiting, waiter: Waiter, stop: StopEvent) -> Obj:
    cluster, trainjob, settings = attempt
    try:
        seen = wait_for(cluster, trainjob, settings, on_event=waiting.on_event, on_change=waiter.observe, stop=stop)
    except TrainJobFailed as error:
        if error.is_unfinished:  # its pods fail again and again: it would go on without end
            waiter.settle()
            if stop_failing_job(cluster, error) == CancelOutcome.ended:
                return _ended_meanwhile(cluster, trainjob, error, waiting)
        raise
    except (TrainJobDeleted, StoppedEarly):  # nothing of it runs any more
        raise
    except BaseException as error:
        if isinstance(error, TrainJobError) and error.is_verdict:  # another client has given it up, and stopped it
            raise
        waiter.settle()
        if isinstance(error, Diverged) and phase_of(error.trainjob).is_final:  # found in the log of a job that has ended
            error.add_outcome(CancelOutcome.ended)
            raise
        # A job that cannot start may still do so tomorrow, when what it lacks appears, and nobody waits for it any more.
        handler = waiting.on_divergence if isinstance(error, Diverged | CannotStart) else None
        outcome = cancel_unwatched_job(cluster, trainjob, handler or waiting.on_error, error)
        if isinstance(error, TrainJobDeadline) and outcome == CancelOutcome.ended:
            return _ended_meanwhile(cluster, trainjob, error, waiting)
        if isinstance(error, TrainJobDeadline | Diverged):
            error.add_outcome(outcome)
        raise
    if phase_of(seen) is Phase.Succeeded:
        return seen
    if waiting.waiter.suspends_at_once:
        waiter.suspend_now()  # the wait may end before the thread that acts on signals has begun
    waiter.settle()
    outcome = cancel_unwatched_job(cluster, trainjob, waiting.on_signal)
    raise Cancelled(f"the wait for TrainJob {name_of(trainjob)} was cancelled; {outcome}")


def _ended_meanwhile(cluster: Cluster, trainjob: Obj, error: TrainJobDeadline | TrainJobFailed, waiting: Waiting) -> Obj:
    """Return a job that had succeeded before it was stopped; raises its failure if it had failed: its own end counts."""
    try:
        current = cluster.get(TRAINJOB, name_of(trainjob), namespace_of(trainjob))
    except ApiError as cause:
        error.add_note(f"{CancelOutcome.ended.value}, and cannot be read: {cause.message}")
        raise error from cause
    if uid_of(current) != uid_of(trainjob):
        raise TrainJobDeleted(f"TrainJob {namespace_of(trainjob)}/{name_of(trainjob)} was replaced while it was being waited for")
    settings = replace(waiting.settings, deadlines=Deadlines(), logs=None)  # it has ended: only its end is read
    return wait_for(cluster, current, settings, on_event=waiting.on_event)


def _not_resubmitted(error: TrainJobFailed, what: str) -> Cancelled:
    name = name_of(error.trainjob)
    return Cancelled(f"TrainJob {name} {what}, and the wait to submit it again was cancelled; nothing runs")


def follow_to_end(cluster: Cluster, trainjob: Obj, waiting: Waiting, *, resubmit: Callable[[], Submitted] | None = None) -> Obj:
    """As `run_to_end`, for a job that is already submitted; `resubmit` submits its step after a preemption, if there is one."""
    with stop_on_signals() as stop:
        return _run_attempts(Attempt(cluster, trainjob, waiting.settings), resubmit, waiting, stop)


class Attempt(NamedTuple):
    """A submitted TrainJob, its cluster, and how it is waited for."""

    cluster: Cluster
    trainjob: Obj
    settings: WaitSettings

    @classmethod
    def of(cls, submitted: Submitted, waiting: Waiting) -> Attempt:
        """Return an attempt with the request's run deadline if the cluster does not enforce it."""
        settings, seconds = waiting.settings, submitted.run_deadline
        if seconds is not None:
            run = settings.deadlines.run
            deadlines = replace(settings.deadlines, run=float(seconds) if run is None else min(run, float(seconds)))
            settings = replace(settings, deadlines=deadlines)
        return cls(submitted.cluster, submitted.trainjob, settings)


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
