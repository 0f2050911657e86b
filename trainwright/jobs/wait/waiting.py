"""How to wait for a job: what ends the wait, who gets its events, and what becomes of the job when the wait ends early.

Events are printed as lines of text, for the logs of Airflow tasks and KFP steps and for terminals.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Self

from trainwright.api.objects import Obj
from trainwright.api.phase import Phase, Verdict
from trainwright.cluster.protocol import Cluster
from trainwright.jobs.logs.log_excerpt import final_state
from trainwright.jobs.logs.log_options import LogLine
from trainwright.jobs.logs.training_log import is_history_line, is_result_line
from trainwright.jobs.request.groups import PREEMPTION_BUDGET
from trainwright.jobs.request.invalid_settings import InvalidSettings
from trainwright.jobs.request.train_request import TrainRequest
from trainwright.jobs.state.cancel import CancelPolicy, cancel_by_suspending, cancel_owned_job
from trainwright.jobs.state.deadline_timer import Deadlines
from trainwright.jobs.state.progress import Progress, progress_line
from trainwright.jobs.state.usage import NO_USAGE
from trainwright.jobs.submit.submit_or_adopt import Submitted
from trainwright.jobs.wait.give_up import CancelHandler
from trainwright.jobs.wait.job_events import (
    JobEvents,
    LogOutput,
    OnJobEvents,
    PodFailed,
    Restarted,
    StartedFrom,
    Used,
    apply_event,
)
from trainwright.jobs.wait.job_observer import WaitSettings
from trainwright.jobs.wait.keep_lease import WaiterOptions
from trainwright.text.foreign_texts import plain

_OF_SUBMISSION = {
    "limits": {"preemption_budget", "job_retries"},
    "ending": {"adopt_finished", "on_changed_request", "previous_jobs", "tie_to_run"},
}
"""Settings of groups that say when a job is submitted: whoever only waits for it never submits one."""


class EventPrinter:
    """A callback for job events; calls `write` with each line of text, without a line end.

    With `progress_seconds`, lines that differ only in percent, time left and metrics have at least so many seconds between them; a
    line that was held back is written, as it is by then, with the next event. All else is written at once. `now` is the clock.
    """

    __slots__ = (
        "_last_line",
        "_next_progress",
        "_now",
        "_progress_seconds",
        "_shown",
        "_write",
        "progress",
        "started_from",
        "usage",
    )

    def __init__(self, write: Callable[[str], None], progress_seconds: float = 0.0, now: Callable[[], float] = time.monotonic):
        self._write, self._progress_seconds, self._now = write, progress_seconds, now
        self._next_progress = 0.0
        self._shown: tuple[Phase, str] | None = None
        self.progress: Progress | None = None
        """Current progress of the job, including what its log shows."""
        self.started_from = ""
        """What the training was last seen to start from."""
        self.usage = NO_USAGE
        """What the attempts that have ended used together."""
        self._last_line = ""

    def __call__(self, events: JobEvents) -> None:
        for event in events:
            self.progress = apply_event(self.progress, event)
            if isinstance(event, LogOutput) and is_shown(event.line):
                self._write(format_log_line(event.line))
            elif isinstance(event, Restarted):
                self._write(format_restart(event))
            elif isinstance(event, PodFailed):
                self._write(plain(event.text))
            elif isinstance(event, StartedFrom) and event.text not in ("", self.started_from):
                self.started_from = event.text
                self._write(f"Starts from {event.text}")
            elif isinstance(event, Used):
                self.usage += event.usage
                self._write(f"Used {event.usage}")
        if (
            self.progress is not None
            and (line := progress_line(self.progress)) != self._last_line
            and self._is_due(self.progress)
        ):
            self._last_line = line
            self._write(line)

    def _is_due(self, progress: Progress) -> bool:
        """Whether a line may be written now: one with another phase or reason to wait always."""
        if not self._progress_seconds:
            return True
        state, now = (progress.phase, progress.note), self._now()
        if state == self._shown and now < self._next_progress:
            return False
        self._shown, self._next_progress = state, now + self._progress_seconds
        return True


@dataclass(frozen=True)
class Waiting:
    """How to wait for a job. Made once, by the component, the operator or the command, and handed on.

    By default a job whose wait ends early is suspended: its pods end, its checkpoints stay, and the same step resumes it.
    """

    settings: WaitSettings = WaitSettings()  # noqa: RUF009  (frozen)
    printer: EventPrinter = field(default_factory=lambda: EventPrinter(lambda _line: None))
    """Gets the job's events first, and knows its progress and usage at the end."""
    observers: Sequence[OnJobEvents] = ()
    """Get the job's events after the printer."""
    on_signal: CancelHandler = cancel_by_suspending
    """Handles Ctrl-C and SIGTERM."""
    on_error: CancelHandler = cancel_by_suspending
    """Handles deadlines and errors while waiting."""
    on_divergence: CancelHandler | None = None
    """Handles a training that has diverged, and one that cannot start; `on_error` by default."""
    waiter: WaiterOptions = WaiterOptions()  # noqa: RUF009  (frozen)
    """Whether a signal suspends the job before anything else is done, and whether the job has a lease of this client."""
    on_submitted: Callable[[Submitted], None] | None = None
    """Called with each attempt that is submitted or adopted; must not raise."""
    preemption_budget: int = PREEMPTION_BUDGET
    """How often the step is submitted again after a preemption."""
    job_retries: int = 0
    """How often the step is submitted again after another failure, see `may_retry`."""

    @classmethod
    def of(
        cls,
        request: TrainRequest,
        printer: EventPrinter | None = None,
        *,
        observers: Sequence[OnJobEvents] = (),
        on_signal: CancelHandler | None = None,
        on_submitted: Callable[[Submitted], None] | None = None,
    ) -> Self:
        """Return how the request says to wait.

        Args:
            request: Its limits, ending and logging count.
            printer: Prints the job's events; nothing by default.
            observers: Get the events, too.
            on_signal: Replaces the request's `on_cancel` when the process receives a signal. Without it, a signal suspends the job
                at once.
            on_submitted: See the field.
        """
        policy = CancelPolicy(request.ending.on_cancel)

        def on_cancel(cluster: Cluster, trainjob: Obj, verdict: Verdict | None = None, /) -> str:
            return cancel_owned_job(cluster, trainjob, policy, verdict=verdict)

        return cls(
            wait_settings_of(request),
            printer or EventPrinter(lambda _line: None),
            observers,
            on_signal or on_cancel,
            on_cancel,
            waiter=waiter_options_of(request, suspends_at_once=on_signal is None),
            on_submitted=on_submitted,
            preemption_budget=request.limits.preemption_budget,
            job_retries=request.limits.job_retries,
        )

    def on_event(self, events: JobEvents) -> None:
        """Pass events to the printer, then to the observers."""
        self.printer(events)
        for observe in self.observers:
            observe(events)


def deadlines_of(request: TrainRequest) -> Deadlines:
    return Deadlines(
        queue=request.limits.queue_timeout_seconds, start=request.limits.start_timeout_seconds, run=request.run_deadline
    )


def of_waiting(request: TrainRequest) -> TrainRequest:
    """Return the settings of a wait for a job that another step has submitted. Raises InvalidSettings for one of submissions."""
    if wrong := [
        (f"{group}.{name}", "of the step that submits the job, and this one only waits for it; set it there")
        for group, names in _OF_SUBMISSION.items()
        for name in sorted(getattr(request, group).given & names)
    ]:
        raise InvalidSettings(wrong)
    return request


def wait_settings_of(request: TrainRequest) -> WaitSettings:
    """Return what ends a wait for the job of a request, and the logs to show."""
    return WaitSettings(
        request.limits.fail_if_stuck,
        request.limits.lost_node_timeout_seconds,
        fail_on_divergence=request.limits.fail_on_divergence,
        restarts=restarts_of_request(request),
        deadlines=deadlines_of(request),
        logs=request.logging.options,
    )


def restarts_of_request(request: TrainRequest) -> int | None:
    """Return how often pods may be started again within one job; None leaves it to the runtime.

    A function or code that raises does so again: a retry belongs to the orchestrator, which knows how many there are.
    """
    return request.limits.restarts or (0 if request.func is not None or request.code else None)


def waiter_options_of(request: TrainRequest, *, suspends_at_once: bool) -> WaiterOptions:
    """Return what the waiting client does for the job: nothing for one that is to run on without it."""
    if request.ending.on_cancel == CancelPolicy.keep:
        return WaiterOptions()
    return WaiterOptions(suspends_at_once, request.ending.waiter_lease_seconds)


def is_shown(line: LogLine) -> bool:
    """Whether a log line is for people: encoded results and histories are not."""
    return not (is_result_line(line.text) or is_history_line(line.text))


def format_restart(restarted: Restarted) -> str:
    """Return a line such as `Restarting: restart 1 of 3`."""
    if restarted.container:
        return f"Restarting: {restarted.count} restart{'s' if restarted.count > 1 else ''} of containers so far"
    return f"Restarting: restart {restarted.count}" + (f" of {restarted.allowed}" if restarted.allowed else "")


def format_log_line(line: LogLine) -> str:
    """Return the text of a log line with its source; of a redrawn progress bar, only the last state."""
    text = final_state(line.text)
    return f"[{line.source}] {text}" if line.source else text
