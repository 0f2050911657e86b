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
from trainwright.jobs.diagnosis.job_retry import wait_to_retry
from trainwright.jobs.diagnosis.preemption import BUDGET, wait_to_resume
from trainwright.jobs.logs.stream_logs import LogStreamOptions
from trainwright.jobs.request.train_request import TrainRequest
from trainwright.jobs.state.cancel import CancelOutcome, cancel_by_suspending
from trainwright.jobs.state.deadline_timer import Deadlines
from trainwright.jobs.state.identity import Identity
from trainwright.jobs.state.workflow import Workflow
from trainwright.jobs.submit.step_credentials import StepCredentials, credentials_until_end
from trainwright.jobs.submit.submit_or_adopt import LatestCheckpoint, Submitted, submit_or_adopt
from trainwright.jobs.wait.follow_job import wait_for
from trainwright.jobs.wait.give_up import CancelHandler, cancel_unwatched_job, stop_failing_job
from trainwright.jobs.wait.job_events import OnJobEvents, ignore_events
from trainwright.jobs.wait.job_observer import WaitSettings
from trainwright.jobs.wait.keep_lease import Waiter, WaiterOptions
from trainwright.jobs.wait.stop_event import StopEvent, stop_on_signals

log = logging.getLogger(__name__)
_NO_DEADLINES = Deadlines()
_SETTINGS = WaitSettings()
_NO_WAITER = WaiterOptions()


def run_to_end(
    cluster: Cluster,
    request: TrainRequest,
    identity: Identity,
    namespace: str,
    *,
    latest_checkpoint: LatestCheckpoint | None = None,
    preemption_budget: int = BUDGET,
    job_retries: int = 0,
    deadlines: Deadlines = _NO_DEADLINES,
    settings: WaitSettings = _SETTINGS,
    on_event: OnJobEvents = ignore_events,
    logs: LogStreamOptions | None = None,
    on_signal: CancelHandler = cancel_by_suspending,
    on_error: CancelHandler = cancel_by_suspending,
    waiter: WaiterOptions = _NO_WAITER,
    workflow: Workflow | None = None,
    credentials: StepCredentials | None = None,
    on_submitted: Callable[[Submitted], None] | None = None,
) -> Obj:
    """Submit or adopt the TrainJob of this step and wait for it; returns it when it has succeeded.

    `on_event` receives the job's events, with `logs` also its log lines, see `wait_for`. `on_signal` handles Ctrl-C and
    SIGTERM, `on_error` deadlines and errors while waiting. Both default to suspending the job: its pods end, its
    checkpoints stay, and the same step resumes it. `waiter` says whether a signal suspends the job before anything else is
    done, and whether the job has a lease of this client; `workflow` is that of the pipeline, to which the job is tied;
    `credentials` are those of `submit_or_adopt`, deleted when the job has ended; `on_submitted` is called with each submitted or
    adopted attempt, and must not raise.
    After a preemption the next attempt is submitted and awaited, up to `preemption_budget` times for the step, and after another
    failure up to `job_retries` times, see `may_retry`; the
    deadlines apply to each attempt separately. Raises Cancelled, TrainJobFailed with a report, Diverged, TrainJobDeadline,
    TrainJobDeleted, StoppedEarly, and the errors of `submit_or_adopt`.
    """
    with stop_on_signals() as stop, credentials_until_end(cluster, identity, namespace, credentials):

        def submit() -> Attempt:
            submitted = submit_or_adopt(
                cluster,
                request,
                identity,
                namespace,
                latest_checkpoint=latest_checkpoint,
                stop=stop,
                workflow=workflow,
                credentials=credentials,
                waiter_lease_seconds=waiter.lease_seconds,
            )
            if on_submitted is not None:
                on_submitted(submitted)
            return _attempt_of(submitted, deadlines)

        options = _WaitOptions(stop, on_event, logs, on_signal, on_error, settings, waiter)
        return _run_attempts(submit, submit, preemption_budget, options, job_retries)


def follow_to_end(
    cluster: Cluster,
    trainjob: Obj,
    *,
    resubmit: Callable[[], Submitted] | None = None,
    preemption_budget: int = BUDGET,
    deadlines: Deadlines = _NO_DEADLINES,
    settings: WaitSettings = _SETTINGS,
    on_event: OnJobEvents = ignore_events,
    logs: LogStreamOptions | None = None,
    on_signal: CancelHandler = cancel_by_suspending,
    on_error: CancelHandler = cancel_by_suspending,
    on_divergence: CancelHandler | None = None,
    waiter: WaiterOptions = _NO_WAITER,
) -> Obj:
    """As `run_to_end`, for a job that is already submitted; `resubmit` submits its step after a preemption.

    `on_divergence` handles a training that has diverged, and one that cannot start; the default is `on_error`.
    """
    with stop_on_signals() as stop:

        def next_attempt() -> Attempt:
            assert resubmit is not None
            return _attempt_of(resubmit(), deadlines)

        budget = preemption_budget if resubmit is not None else 0
        options = _WaitOptions(stop, on_event, logs, on_signal, on_error, settings, waiter, on_divergence)
        return _run_attempts(lambda: Attempt(cluster, trainjob, deadlines), next_attempt, budget, options)


class Attempt(NamedTuple):
    """A submitted TrainJob, its cluster and its deadlines."""

    cluster: Cluster
    trainjob: Obj
    deadlines: Deadlines


class _WaitOptions(NamedTuple):
    """Options of the wait for a job."""

    stop: StopEvent
    on_event: OnJobEvents
    logs: LogStreamOptions | None
    on_signal: CancelHandler
    on_error: CancelHandler
    settings: WaitSettings
    waiter: WaiterOptions
    on_divergence: CancelHandler | None = None


def _attempt_of(submitted: Submitted, deadlines: Deadlines) -> Attempt:
    return Attempt(submitted.cluster, submitted.trainjob, _with_run_deadline(deadlines, submitted.run_deadline))


def _run_attempts(
    first: Callable[[], Attempt], resubmit: Callable[[], Attempt], budget: int, options: _WaitOptions, retries: int = 0
) -> Obj:
    """Wait for one attempt after another while they are preempted, or fail. The budgets, stored on the cluster, bound the loop."""
    attempt = first()
    while True:
        try:
            return _wait_for_attempt(attempt, options)
        except Preempted as error:
            if not budget:
                raise
            if not wait_to_resume(attempt.cluster, error, budget, options.stop):
                raise _not_resubmitted(error, "was preempted") from error
        except TrainJobFailed as error:
            if not retries:
                raise
            if not wait_to_retry(attempt.cluster, error, retries, options.stop):
                raise _not_resubmitted(error, "failed") from error
        attempt = resubmit()


def _not_resubmitted(error: TrainJobFailed, what: str) -> Cancelled:
    name = name_of(error.trainjob)
    return Cancelled(f"TrainJob {name} {what}, and the wait to submit it again was cancelled; nothing runs")


def _wait_for_attempt(attempt: Attempt, options: _WaitOptions) -> Obj:
    with Waiter(attempt.cluster, attempt.trainjob, options.waiter) as waiter:
        if options.waiter.suspends_at_once:
            options.stop.at_once = waiter.suspend_now
            if options.stop.is_set():  # while the job was being submitted
                waiter.suspend_now()
        try:
            return _wait_or_cancel(attempt, options, waiter)
        finally:
            options.stop.at_once = None


def _wait_or_cancel(attempt: Attempt, options: _WaitOptions, waiter: Waiter) -> Obj:
    cluster, trainjob, deadlines = attempt
    try:
        seen = wait_for(
            cluster,
            trainjob,
            deadlines=deadlines,
            on_event=options.on_event,
            on_change=waiter.observe,
            logs=options.logs,
            stop=options.stop,
            settings=options.settings,
        )
    except TrainJobFailed as error:
        if error.is_unfinished:
            waiter.settle()
            if stop_failing_job(cluster, error) == CancelOutcome.ended:
                return _ended_meanwhile(cluster, trainjob, error, options)
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
        handler = options.on_divergence if isinstance(error, Diverged | CannotStart) else None
        outcome = cancel_unwatched_job(cluster, trainjob, handler or options.on_error, error)
        if isinstance(error, TrainJobDeadline) and outcome == CancelOutcome.ended:
            return _ended_meanwhile(cluster, trainjob, error, options)
        if isinstance(error, TrainJobDeadline | Diverged):
            error.add_outcome(outcome)
        raise
    if phase_of(seen) is Phase.Succeeded:
        return seen
    if options.waiter.suspends_at_once:
        waiter.suspend_now()  # the wait may end before the thread that acts on signals has begun
    waiter.settle()
    outcome = cancel_unwatched_job(cluster, trainjob, options.on_signal)
    raise Cancelled(f"the wait for TrainJob {name_of(trainjob)} was cancelled; {outcome}")


def _ended_meanwhile(cluster: Cluster, trainjob: Obj, error: TrainJobDeadline | TrainJobFailed, options: _WaitOptions) -> Obj:
    """Return a job that had succeeded before it was stopped; raises its failure if it had failed: its own end counts."""
    try:
        current = cluster.get(TRAINJOB, name_of(trainjob), namespace_of(trainjob))
    except ApiError as cause:
        error.add_note(f"{CancelOutcome.ended.value}, and cannot be read: {cause.message}")
        raise error from cause
    if uid_of(current) != uid_of(trainjob):
        raise TrainJobDeleted(f"TrainJob {namespace_of(trainjob)}/{name_of(trainjob)} was replaced while it was being waited for")
    return wait_for(cluster, current, on_event=options.on_event, settings=options.settings)


def _with_run_deadline(deadlines: Deadlines, seconds: int | None) -> Deadlines:
    """Add the request's run deadline if the cluster does not enforce it."""
    if seconds is None:
        return deadlines
    return replace(deadlines, run=float(seconds) if deadlines.run is None else min(deadlines.run, float(seconds)))
