"""`trainwright schedule`: creates, replaces and deletes schedules of pipelines."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from trainwright.cli.errors import BAD_INPUT, fail
from trainwright.cli.help_pages import CommandsByGroup
from trainwright.cli.output import Format, print_lines, print_object
from trainwright.cli.pipeline_commands.options import (
    PIPELINE_HELP,
    Experiment,
    Host,
    Image,
    Parallelism,
    Param,
    ParamsFile,
    PipelineNamespace,
    interrupt_exits,
    parameter_values,
    pipeline_errors_exit,
)
from trainwright.pipeline_runs.schedule import (
    Schedule,
    ScheduleOutcome,
    checked_schedule_name,
    cron_of_six_fields,
    delete_schedule,
    set_schedule,
)
from trainwright.pipeline_runs.server import connect, experiment_name, server_address
from trainwright.pipeline_runs.source import CompileSettings, compile_pipeline

_group = typer.Typer(cls=CommandsByGroup, no_args_is_help=True, help="Create, replace and delete schedules of pipelines.")


def register(app: typer.Typer) -> None:
    app.add_typer(_group, name="schedule")


@_group.callback()
def schedule() -> None:
    """Create, replace and delete schedules of pipelines."""  # with a callback, `kfp` stays a subcommand although it is the only one


@_group.command("kfp")
def schedule_kfp(
    name: Annotated[str, typer.Option("--name", help="Name of the schedule, unique on the server or in the namespace.")],
    pipeline: Annotated[str, typer.Argument(help=PIPELINE_HELP)] = "",
    cron: Annotated[
        str,
        typer.Option(
            "--cron",
            help="Six fields: second minute hour day-of-month month day-of-week, such as '0 0 3 * * *'; of five, the seconds are 0. "
            "In the server's time zone, which is UTC unless it is configured.",
        ),
    ] = "",
    param: Param = None,
    params: ParamsFile = "",
    host: Host = "",
    namespace: PipelineNamespace = "",
    experiment: Experiment = "",
    service_account: Annotated[
        str, typer.Option("--service-account", help="Service account of the runs. Default: the server's.")
    ] = "",
    disable: Annotated[bool, typer.Option("--disable", help="Create or leave it disabled; without, it is enabled.")] = False,
    delete: Annotated[
        bool,
        typer.Option("--delete", help="Delete the schedule; while it has runs in progress, which continue, only disable it."),
    ] = False,
    image: Image = "",
    parallelism: Parallelism = None,
    output: Annotated[Format | None, typer.Option("-o", "--output", help="Print the outcome as a document.")] = None,
) -> None:
    """Create a schedule of a pipeline in Kubeflow Pipelines, or replace it if it differs. The same call again changes nothing.

    Missed times are not caught up on, one run at a time is in progress, and no step is taken from the cache.
    """
    with pipeline_errors_exit(), interrupt_exits():
        checked_schedule_name(name)
        server_address(host)
        if delete:
            if disable:
                fail("--delete and --disable exclude each other", BAD_INPUT)
            _show(delete_schedule(connect(host, namespace=namespace), name), output)
            return
        if not (pipeline and cron):
            fail("a pipeline and --cron are required, or --delete", BAD_INPUT)
        six_fields = cron_of_six_fields(cron)
        if len(cron.split()) == 5:
            print_lines(f"cron: five fields were given; second 0 was added: {six_fields!r}", error=True)
        experiment_name(experiment)
        compiled = compile_pipeline(pipeline, CompileSettings(image, parallelism))
        wanted = Schedule(
            name,
            compiled,
            six_fields,
            parameter_values(compiled, param, params),
            experiment,
            service_account,
            is_enabled=not disable,
        )
        _show(set_schedule(connect(host, namespace=namespace), wanted), output)


def _show(outcome: ScheduleOutcome, output: Format | None) -> None:
    if output is not None:
        lists = {"removed": list(outcome.removed), "runs_in_progress": list(outcome.runs_in_progress)}
        print_object({**asdict(outcome), **lists}, output)
        return
    identity = f" (recurring run {outcome.recurring_run_id}, version {outcome.version_name})" if outcome.recurring_run_id else ""
    print_lines(f"schedule {outcome.name}: {outcome.action}{identity}")
    if outcome.action in ("unchanged", "enabled", "disabled") and outcome.removed:
        print_lines(f"removed what an earlier call had left: {', '.join(outcome.removed)}")
    if outcome.runs_in_progress:
        print_lines(
            f"still there, disabled: the schedule of what is in progress ({', '.join(outcome.runs_in_progress)}); with it the server "
            "would delete these runs' workflows and TrainJobs. The same call deletes it after their end"
        )
