"""Runs a training job from submission to its end in one call, for KFP steps and Airflow tasks.

When the wait ends early, because of a signal, a deadline or an error, the job is cancelled, so that nothing keeps running unwatched.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from trainwright.api.errors import ApiError
from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import Obj, name_of, namespace_of, uid_of
from trainwright.api.phase import Phase, phase_of
from trainwright.cluster.protocol import Cluster
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
from trainwright.jobs.state.cancel import CancelOutcome
from trainwright.jobs.state.deadline_timer import Deadlines
from trainwright.jobs.submit.submission import Submission, credentials_until_end
from trainwright.jobs.submit.submit_or_adopt import Submitted, submit_or_adopt
from trainwright.jobs.wait.follow_job import wait_for
from trainwright.jobs.wait.give_up import StopEvent, cancel_unwatched_job, stop_failing_job, stop_on_signals
from trainwright.jobs.wait.job_observer import WaitSettings
from trainwright.jobs.wait.keep_lease import Waiter
from trainwright.jobs.wait.waiting import Waiting

log = logging.getLogger(__name__)


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


def _run_attempts(attempt: Attempt, resubmit: Callable[[], Submitted] | None, waiting: Waiting, stop: StopEvent) -> Obj:
    """Wait for one attempt after another while they are preempted, or fail. The budgets, stored on the cluster, bound the loop."""
    while True:
        try:
            return _wait_for_attempt(attempt, waiting, stop)
        except Preempted as error:
            if resubmit is None or not waiting.preemption_budget:
                raise
            if not wait_to_resume(attempt.cluster, error, waiting.preemption_budget, stop):
                raise _not_resubmitted(error, "was preempted") from error
        except TrainJobFailed as error:
            if resubmit is None or not waiting.job_retries:
                raise
            if not wait_to_retry(attempt.cluster, error, waiting.job_retries, stop):
                raise _not_resubmitted(error, "failed") from error
        attempt = Attempt.of(resubmit(), waiting)


def _not_resubmitted(error: TrainJobFailed, what: str) -> Cancelled:
    name = name_of(error.trainjob)
    return Cancelled(f"TrainJob {name} {what}, and the wait to submit it again was cancelled; nothing runs")


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
        if error.is_unfinished:
            waiter.settle()
            if stop_failing_job(cluster, error) == CancelOutcome.ended:
                return _ended_meanwhile(cluster, trainjob, error, waiting)
        raise
    except (TrainJobDeleted, StoppedEarly):
        raise
    except BaseException as error:
        if isinstance(error, TrainJobError) and error.is_verdict:
            raise
        waiter.settle()
        if isinstance(error, Diverged) and phase_of(error.trainjob).is_final:
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
