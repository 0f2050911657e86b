"""Runs a training step from its request to its result in one call, for KFP components, Airflow tasks and programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypedDict

from trainwright.api.objects import Obj, name_of, namespace_of
from trainwright.cluster.protocol import Cluster
from trainwright.jobs.logs.results import results_of
from trainwright.jobs.logs.stream_logs import LogStreamOptions
from trainwright.jobs.request.train_request import TrainRequest
from trainwright.jobs.state.cancel import CancelPolicy, cancel_owned_job
from trainwright.jobs.state.deadline_timer import Deadlines
from trainwright.jobs.state.identity import Identity
from trainwright.jobs.state.progress import progress_of
from trainwright.jobs.state.run_folder import folder_of_job
from trainwright.jobs.state.saved_hours import saved_hours
from trainwright.jobs.state.started_from import read_started_from
from trainwright.jobs.state.usage import NO_USAGE, Usage
from trainwright.jobs.state.workflow import Workflow
from trainwright.jobs.submit.step_credentials import StepCredentials
from trainwright.jobs.submit.submit_or_adopt import LatestCheckpoint, Submitted
from trainwright.jobs.wait.event_printer import EventPrinter
from trainwright.jobs.wait.give_up import CancelHandler
from trainwright.jobs.wait.job_events import JobEvents, OnJobEvents, StartedFrom
from trainwright.jobs.wait.job_observer import WaitSettings
from trainwright.jobs.wait.keep_lease import WaiterOptions
from trainwright.jobs.wait.run_to_end import run_to_end


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


class Waiting(TypedDict):
    """How to wait for a job: arguments that `run_to_end` and `follow_to_end` share. `on_event` gets all events of the job."""

    deadlines: Deadlines
    settings: WaitSettings
    on_event: OnJobEvents
    logs: LogStreamOptions | None
    on_signal: CancelHandler
    on_error: CancelHandler
    waiter: WaiterOptions


def run_step(
    cluster: Cluster,
    request: TrainRequest,
    identity: Identity,
    namespace: str,
    *,
    latest_checkpoint: LatestCheckpoint | None = None,
    event_printer: EventPrinter | None = None,
    on_signal: CancelHandler | None = None,
    workflow: Workflow | None = None,
    observers: Sequence[OnJobEvents] = (),
    credentials: StepCredentials | None = None,
    on_submitted: Callable[[Submitted], None] | None = None,
    job_retries: int = 0,
) -> StepResult:
    """Submit or adopt the TrainJob of this step and wait until it has succeeded.

    `on_signal` replaces the request's `on_cancel` when the process receives a signal; `workflow` is that of the pipeline, to which
    the job is tied; `observers` get the job's events after the printer. Pods get the `credentials` as a Secret, where the request
    names none. `on_submitted` and `job_retries` are those of `run_to_end`, and so are the errors.
    """
    event_printer = event_printer or EventPrinter(lambda _line: None)
    callbacks: tuple[OnJobEvents, ...] = (event_printer, *observers)

    def on_event(events: JobEvents) -> None:
        for callback in callbacks:
            callback(events)

    trainjob = run_to_end(
        cluster,
        request,
        identity,
        namespace,
        latest_checkpoint=latest_checkpoint,
        preemption_budget=request.preemption_budget,
        job_retries=job_retries,
        workflow=workflow,
        credentials=credentials,
        on_submitted=on_submitted,
        **waiting_of(request, on_event, on_signal=on_signal),
    )
    metrics = dict((event_printer.progress or progress_of(trainjob)).metrics)
    result = replace(result_of(cluster, trainjob, request, metrics), usage=event_printer.usage)
    event_printer((StartedFrom(result.started_from),))
    return result


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


def waiting_of(request: TrainRequest, on_event: OnJobEvents, *, on_signal: CancelHandler | None = None) -> Waiting:
    """Return how the request says to wait; `on_signal` replaces its `on_cancel` when the process receives a signal.

    Without it, a signal suspends the job at once. Raises ValueError for invalid `logs`.
    """
    on_cancel = cancel_handler(request)
    return {
        "deadlines": deadlines_of(request),
        "settings": wait_settings_of(request),
        "on_event": on_event,
        "logs": LogStreamOptions.parse(request.logs, request.log_bytes),
        "on_signal": on_signal or on_cancel,
        "on_error": on_cancel,
        "waiter": waiter_options_of(request, suspends_at_once=on_signal is None),
    }


def deadlines_of(request: TrainRequest) -> Deadlines:
    return Deadlines(queue=request.queue_timeout_seconds, start=request.start_timeout_seconds, run=request.run_deadline)


def wait_settings_of(request: TrainRequest) -> WaitSettings:
    return WaitSettings(
        request.fail_if_stuck,
        request.lost_node_timeout_seconds,
        fail_on_divergence=request.fail_on_divergence,
        restarts=restarts_of_request(request),
    )


def restarts_of_request(request: TrainRequest) -> int | None:
    """Return how often pods may be started again within one job; None leaves it to the runtime.

    A function or code that raises does so again: a retry belongs to the orchestrator, which knows how many there are.
    """
    return request.restarts or (0 if request.func is not None or request.code else None)


def waiter_options_of(request: TrainRequest, *, suspends_at_once: bool) -> WaiterOptions:
    """Return what the waiting client does besides: nothing for a job that is to run on without it."""
    if request.on_cancel == CancelPolicy.keep:
        return WaiterOptions()
    return WaiterOptions(suspends_at_once, request.waiter_lease_seconds)


def cancel_handler(request: TrainRequest) -> CancelHandler:
    """Return the handler for the request's `on_cancel`."""
    policy = CancelPolicy(request.on_cancel)
    return lambda cluster, trainjob, verdict=None: cancel_owned_job(cluster, trainjob, policy, verdict=verdict)
