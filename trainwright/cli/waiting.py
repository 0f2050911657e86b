"""Waiting for TrainJobs on the command line: `trainwright wait`, and what `trainwright submit --wait` does after submitting."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import typer
from rich.console import Console

from trainwright.api.errors import ApiError
from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import Obj, name_of, namespace_of
from trainwright.api.phase import Phase
from trainwright.cli.connection import HomeChoice, Kubeconfig, Namespace, SubmissionMode, jobs_cluster_for
from trainwright.cli.errors import cluster_errors_exit
from trainwright.cli.output import Format, print_object
from trainwright.cli.progress_display import ProgressDisplay
from trainwright.cluster.protocol import Cluster
from trainwright.jobs import Deadlines, TrainJobError
from trainwright.jobs.diagnosis.exit_codes import ExitCode, exit_code_of
from trainwright.jobs.logs.live_logs import TOTAL_BYTES, LogStreamOptions
from trainwright.jobs.wait.cancel import POD_TERMINATION_SECONDS, CancelPolicy, cancel_job
from trainwright.jobs.wait.run import Cancelled, follow_to_end

_SECONDS = "Seconds; 0 waits for ever."
Timeout = Annotated[float, typer.Option(help=f"For all of it. {_SECONDS}", min=0)]
QueueTimeout = Annotated[
    float, typer.Option("--queue-timeout-seconds", "--queue-timeout", help=f"While it is queued or suspended. {_SECONDS}", min=0)
]
StartTimeout = Annotated[
    float, typer.Option("--start-timeout-seconds", "--start-timeout", help=f"Until its nodes train. {_SECONDS}", min=0)
]
RunTimeout = Annotated[float, typer.Option("--run-timeout-seconds", "--run-timeout", help=f"While they train. {_SECONDS}", min=0)]
Logs = Annotated[bool, typer.Option("--logs", help="Print what the job prints, on standard output.")]
LogsOf = Annotated[str, typer.Option(help="With --logs: a rank of the training nodes, all, STEP:RANK or STEP:all.")]
LogBytes = Annotated[int, typer.Option(help="With --logs: how much; after that the last lines, when the job has ended.", min=0)]


class OnInterrupt(enum.StrEnum):
    """What becomes of a job when the wait for it ends early."""

    keep = "keep"
    suspend = "suspend"
    delete = "delete"


OnLeave = Annotated[
    OnInterrupt, typer.Option("--on-cancel", "--stopping", help="What becomes of the job when the wait ends early.")
]
NO_LIMIT, RANK_0 = 0.0, "0"


@dataclass(frozen=True)
class Wait:
    """How somebody waits."""

    deadlines: Deadlines
    live: LogStreamOptions | None
    stopping: OnInterrupt

    @classmethod
    def of(
        cls,
        timeout: float,
        queue: float,
        start: float,
        run: float,
        logs: bool,
        logs_of: str,
        log_bytes: int,
        stopping: OnInterrupt,
    ) -> Wait:
        """From the options. Raises ValueError."""
        live = LogStreamOptions.parse(logs_of, log_bytes)
        return cls(Deadlines(queue or None, start or None, run or None, timeout or None), live if logs else None, stopping)


def register(app: typer.Typer) -> None:
    app.command("wait")(wait)


def wait(
    name: Annotated[str, typer.Argument(help="Name of the TrainJob.")],
    timeout: Timeout = NO_LIMIT,
    queue_timeout: QueueTimeout = NO_LIMIT,
    start_timeout: StartTimeout = NO_LIMIT,
    run_timeout: RunTimeout = NO_LIMIT,
    logs: Logs = False,
    logs_of: LogsOf = RANK_0,
    log_bytes: LogBytes = TOTAL_BYTES,
    stopping: OnLeave = OnInterrupt.keep,
    namespace: Namespace = "",
    kubeconfig: Kubeconfig = None,
    home: HomeChoice = None,
    submission_mode: SubmissionMode = None,
    output: Annotated[Format | None, typer.Option("-o", "--output", help="The end as a document: the job, or its error.")] = None,
) -> None:
    """Wait until a TrainJob has succeeded. The exit code says how it ended, see docs/exit-codes.md."""
    with cluster_errors_exit():
        how = Wait.of(timeout, queue_timeout, start_timeout, run_timeout, logs, logs_of, log_bytes, stopping)
        cluster = jobs_cluster_for(kubeconfig, home, submission_mode)
        trainjob = cluster.get(TRAINJOB, name, namespace or cluster.default_namespace)
        raise typer.Exit(waited_for(cluster, trainjob, how, output))


def waited_for(cluster: Cluster, trainjob: Obj, how: Wait, output: Format | None) -> int:
    """Wait, and say how it ended; returns the exit code. Raises ApiError."""
    on_interrupt = _interrupt_handler(how.stopping)
    try:
        with ProgressDisplay(Console(stderr=True)) as show:
            ended = follow_to_end(
                cluster,
                trainjob,
                deadlines=how.deadlines,
                on_event=show,
                logs=how.live,
                on_signal=on_interrupt,
                on_error=on_interrupt,
            )
    except (TrainJobError, ApiError) as error:
        code = ExitCode.interrupted if isinstance(error, Cancelled) else exit_code_of(error)
        typer.echo(str(error), err=True)
        if output is not None:
            print_object(_told(trainjob, error, code), output)
        return int(code)
    if output is not None:
        print_object(ended, output)
    else:
        print(f"TrainJob {namespace_of(trainjob)}/{name_of(trainjob)} {Phase.Succeeded.value}")
    return int(ExitCode.succeeded)


def _interrupt_handler(stopping: OnInterrupt) -> Callable[[Cluster, Obj], str]:
    """A person says what becomes of a job, whoever made it."""
    return lambda cluster, trainjob: str(cancel_job(cluster, trainjob, CancelPolicy(stopping.value), timeout_seconds=POD_TERMINATION_SECONDS))


def _told(trainjob: Obj, error: TrainJobError | ApiError, code: ExitCode) -> Obj:
    report = getattr(error, "report", None)
    return {
        "trainjob": {"namespace": namespace_of(trainjob), "name": name_of(trainjob)},
        "error": type(error).__name__,
        "message": str(error),
        "exitCode": int(code),
        "retryable": error.retryable,
        "report": report.as_dict() if report is not None else None,
    }
