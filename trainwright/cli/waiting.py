"""Waits for TrainJobs on the command line: `trainwright wait` and `trainwright submit --wait`.

The events of the job are a progress bar in a terminal, else lines. Logs are printed on standard output.
"""

from __future__ import annotations

import enum
import math
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from trainwright.api.errors import ApiError
from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import Obj, name_of, namespace_of
from trainwright.api.phase import Phase, Verdict
from trainwright.cli.connection import HomeChoice, Kubeconfig, Namespace, SubmissionMode, jobs_cluster_for
from trainwright.cli.errors import cluster_errors_exit
from trainwright.cli.output import Format, log_text, print_lines, print_object
from trainwright.cluster.protocol import Cluster
from trainwright.jobs import Deadlines, TrainJobError, Waiting
from trainwright.jobs.diagnosis.errors import Cancelled
from trainwright.jobs.diagnosis.exit_codes import ExitCode, exit_code_of
from trainwright.jobs.logs.log_options import TOTAL_BYTES, LogStreamOptions
from trainwright.jobs.state.cancel import POD_TERMINATION_SECONDS, CancelPolicy, cancel_job
from trainwright.jobs.state.deadline_timer import START_TIMEOUT_SECONDS
from trainwright.jobs.state.progress import progress_line
from trainwright.jobs.wait.give_up import CancelHandler
from trainwright.jobs.wait.job_events import JobEvents, LogOutput, OnJobEvents, ignore_events
from trainwright.jobs.wait.job_observer import WaitSettings
from trainwright.jobs.wait.run_step import follow_to_end
from trainwright.jobs.wait.waiting import EventPrinter, format_log_line, is_shown

_SECONDS = "In seconds; 0: no limit."
_LONGEST_SECONDS = 10 * 366 * 86400
"""Ten years; clocks of operating systems overflow beyond a few hundred."""


def finite_seconds(value: float | None) -> float | None:
    """Callback of options in seconds: rejects infinity and what is no number, which would wait for ever or overflow a clock."""
    if value is not None and (not math.isfinite(value) or value > _LONGEST_SECONDS):
        raise typer.BadParameter(f"not a number of seconds up to {_LONGEST_SECONDS} (ten years)")
    return value


Timeout = Annotated[float, typer.Option(help=f"Maximum total time. {_SECONDS}", min=0, callback=finite_seconds)]
QueueTimeout = Annotated[
    float,
    typer.Option(
        "--queue-timeout-seconds",
        "--queue-timeout",
        help=f"Maximum time queued or suspended. {_SECONDS}",
        min=0,
        callback=finite_seconds,
    ),
]
StartTimeout = Annotated[
    float,
    typer.Option(
        "--start-timeout-seconds",
        "--start-timeout",
        help=f"Maximum time until all pods of the training have started; time of initializers does not count. {_SECONDS}",
        min=0,
        callback=finite_seconds,
    ),
]
FailIfStuck = Annotated[
    bool,
    typer.Option(
        "--fail-if-stuck/--no-fail-if-stuck",
        help="Fail as soon as the job can never start (an invalid image name, a Job that the API server refuses).",
    ),
]
FailOnDivergence = Annotated[
    bool,
    typer.Option(
        "--fail-on-divergence/--no-fail-on-divergence",
        help="Fail as soon as the loss or the gradient norm is not finite in several reports, or in the last one.",
    ),
]
LostNodeTimeout = Annotated[
    float,
    typer.Option(
        "--lost-node-timeout-seconds",
        "--lost-node-timeout",
        help=f"Maximum time for which pods may not end on a lost node. {_SECONDS}",
        min=0,
        callback=finite_seconds,
    ),
]
RunTimeout = Annotated[
    float,
    typer.Option(
        "--run-timeout-seconds", "--run-timeout", help=f"Maximum time of training. {_SECONDS}", min=0, callback=finite_seconds
    ),
]
RunTimeoutOfStep = Annotated[
    float | None,
    typer.Option(
        "--run-timeout-seconds",
        "--run-timeout",
        help="Maximum time of training. In seconds; 0: no limit. Default: that of the manifest, else a week; none for -f alone.",
        min=0,
        callback=finite_seconds,
    ),
]
Logs = Annotated[bool, typer.Option("--logs", help="Print the job's logs on standard output.")]
LogsOf = Annotated[str, typer.Option(help="With --logs: a rank of the training nodes, all, STEP:RANK or STEP:all.")]
LogBytes = Annotated[
    int, typer.Option(help="With --logs: maximum bytes; beyond that only the last lines, when the job ends.", min=0)
]


class OnInterrupt(enum.StrEnum):
    """What to do with a job when the wait ends early."""

    keep = "keep"
    suspend = "suspend"
    delete = "delete"


OnInterruptOption = Annotated[
    OnInterrupt, typer.Option("--on-cancel", "--stopping", help="What to do with the job when the wait ends early.")
]
OnInterruptOfOwnJob = Annotated[
    OnInterrupt | None,
    typer.Option(
        "--on-cancel",
        "--stopping",
        help="What to do with the job when the wait ends early. Default: keep it, but suspend a training that has diverged.",
    ),
]
NO_LIMIT, RANK_0 = 0.0, "0"
START_LIMIT = float(START_TIMEOUT_SECONDS)


def limits(queue: float, start: float, run: float, total: float) -> Deadlines:
    """Return the deadlines that options in seconds set; 0 disables a deadline."""
    return Deadlines(queue or None, start or None, run or None, total or None)


def log_options(logs: bool, logs_of: str, log_bytes: int) -> LogStreamOptions | None:
    """Return which lines of the log to print; None without `logs`. Raises ValueError, also for options that are not used."""
    options = LogStreamOptions.parse(logs_of, log_bytes)
    return options if logs else None


def interruptible(settings: WaitSettings, on_interrupt: OnInterrupt, on_divergence: OnInterrupt | None = None) -> Waiting:
    """Return how to wait for a job, whoever created it; `on_divergence` is `on_interrupt` by default."""
    handle, handle_divergence = map(_interrupt_handler, (on_interrupt, on_divergence or on_interrupt))
    return Waiting(settings, on_signal=handle, on_error=handle, on_divergence=handle_divergence)


def register(app: typer.Typer) -> None:
    app.command("wait")(wait)


def wait(
    name: Annotated[str, typer.Argument(help="Name of the TrainJob.")],
    timeout: Timeout = NO_LIMIT,
    queue_timeout: QueueTimeout = NO_LIMIT,
    start_timeout: StartTimeout = START_LIMIT,
    run_timeout: RunTimeout = NO_LIMIT,
    fail_if_stuck: FailIfStuck = True,
    fail_on_divergence: FailOnDivergence = True,
    lost_node_timeout: LostNodeTimeout = NO_LIMIT,
    logs: Logs = False,
    logs_of: LogsOf = RANK_0,
    log_bytes: LogBytes = TOTAL_BYTES,
    on_interrupt: OnInterruptOption = OnInterrupt.keep,
    namespace: Namespace = "",
    kubeconfig: Kubeconfig = None,
    home: HomeChoice = None,
    submission_mode: SubmissionMode = None,
    output: Annotated[Format | None, typer.Option("-o", "--output", help="Print the job, or its error, as a document.")] = None,
) -> None:
    """Wait until a TrainJob has succeeded. The exit code depends on the outcome, see docs/exit-codes.md."""
    with cluster_errors_exit():
        settings = WaitSettings(
            fail_if_stuck,
            lost_node_timeout or None,
            fail_on_divergence=fail_on_divergence,
            deadlines=limits(queue_timeout, start_timeout, run_timeout, timeout),
            logs=log_options(logs, logs_of, log_bytes),
        )
        cluster = jobs_cluster_for(kubeconfig, home, submission_mode)
        trainjob = cluster.get(TRAINJOB, name, namespace or cluster.default_namespace)
        raise typer.Exit(wait_and_report(cluster, trainjob, interruptible(settings, on_interrupt), output))


def wait_and_report(
    cluster: Cluster,
    trainjob: Obj,
    waiting: Waiting,
    output: Format | None,
    observing: AbstractContextManager[OnJobEvents] | None = None,
) -> int:
    """Wait for a job and print the outcome; returns the exit code. What `observing` yields gets the events of the job, too."""
    try:
        with (
            observing or nullcontext(ignore_events) as observe,
            ProgressDisplay(Console(stderr=True, markup=False, emoji=False)) as show,
        ):
            ended = follow_to_end(cluster, trainjob, replace(waiting, observers=(show, observe)))
    except (TrainJobError, ApiError) as error:
        code = ExitCode.interrupted if isinstance(error, Cancelled) else exit_code_of(error)
        print_lines(error, error=True)
        if output is not None:
            print_object(_error_document(trainjob, error, code), output)
        return int(code)
    if output is not None:
        print_object(ended, output)
    else:
        print_lines(f"TrainJob {namespace_of(trainjob)}/{name_of(trainjob)} {Phase.Succeeded.value}")
    return int(ExitCode.succeeded)


def _interrupt_handler(on_interrupt: OnInterrupt) -> CancelHandler:
    """Return the handler that cancels the job, whoever created it."""
    policy = CancelPolicy(on_interrupt.value)

    def handle(cluster: Cluster, trainjob: Obj, verdict: Verdict | None = None) -> str:
        return str(cancel_job(cluster, trainjob, policy, verdict=verdict, timeout_seconds=POD_TERMINATION_SECONDS))

    return handle


def _error_document(trainjob: Obj, error: TrainJobError | ApiError, code: ExitCode) -> Obj:
    report = getattr(error, "report", None)
    return {
        "trainjob": {"namespace": namespace_of(trainjob), "name": name_of(trainjob)},
        "error": type(error).__name__,
        "message": str(error),
        "exitCode": int(code),
        "retryable": error.retryable,
        "report": report.as_dict() if report is not None else None,
    }


class ProgressDisplay:
    """A context manager and a callback for job events."""

    def __init__(self, console: Console):
        self._console = console
        columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
        self._bar = Progress(*columns, console=console, transient=True)
        self._task = self._bar.add_task("", total=None)
        self._event_printer = EventPrinter(self._line)

    def __enter__(self) -> ProgressDisplay:
        if self._console.is_terminal:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._console.is_terminal:
            self._bar.stop()

    def __call__(self, events: JobEvents) -> None:
        for event in events:
            if isinstance(event, LogOutput) and is_shown(event.line):
                print(log_text(format_log_line(event.line)), flush=True)
        self._event_printer(tuple(event for event in events if not isinstance(event, LogOutput)))

    def _line(self, line: str) -> None:
        if not self._console.is_terminal:
            self._console.print(line, highlight=False, markup=False, soft_wrap=True)
        elif (progress := self._event_printer.progress) is not None and line == progress_line(progress):
            known = progress.percent is not None
            self._bar.update(self._task, description=line, total=100 if known else None, completed=progress.percent or 0)
        else:
            self._bar.console.print(line, highlight=False, markup=False, soft_wrap=True)
