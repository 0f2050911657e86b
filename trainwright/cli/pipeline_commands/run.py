"""`trainwright pipeline run`: runs a pipeline on this machine, or on a server of Kubeflow Pipelines."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from trainwright.api.objects import Obj
from trainwright.cli.connection import selected_home
from trainwright.cli.errors import BAD_INPUT, fail
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
    print_warnings,
)
from trainwright.cli.waiting import finite_seconds
from trainwright.jobs.diagnosis.exit_codes import ExitCode
from trainwright.jobs.logs.log_excerpt import LOG_LINES, log_tail
from trainwright.pipeline_runs.compiled import CompiledPipeline
from trainwright.pipeline_runs.errors import ServerError
from trainwright.pipeline_runs.local_run import run_locally
from trainwright.pipeline_runs.runs import SUCCEEDED, follow_run, start_run, state_of
from trainwright.pipeline_runs.server import HOST_VARIABLE, PipelineServer, checked_name, connect, experiment_name, server_address
from trainwright.pipeline_runs.source import CompileSettings, compile_pipeline
from trainwright.pipeline_runs.step_logs import StepLogs, TrainingProgress
from trainwright.pipeline_runs.task_nodes import FailedTask, failed_tasks, failure_message

_MOST_LOGS = 5
"""Failed tasks whose logs are read."""
_LOCAL_OUTPUTS = "local_outputs"
"""Where artifacts of local runs go, in the current folder: where kfp puts them, too."""


def run_pipeline(
    pipeline: Annotated[str, typer.Argument(help=PIPELINE_HELP)],
    param: Param = None,
    params: ParamsFile = "",
    local: Annotated[bool, typer.Option("--local", help="Run each step as a process on this machine, and wait.")] = False,
    host: Host = "",
    namespace: PipelineNamespace = "",
    experiment: Experiment = "",
    run_name: Annotated[str, typer.Option("--run-name", help="Default: the pipeline's name and the time.")] = "",
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until the run has ended; see docs/pipelines.md for exit codes.")
    ] = False,
    timeout: Annotated[
        float, typer.Option(help="With --wait or --local: maximum seconds; 0: no limit.", min=0, callback=finite_seconds)
    ] = 0,
    image: Image = "",
    parallelism: Parallelism = None,
    output: Annotated[Format | None, typer.Option("-o", "--output", help="Print the run as a document.")] = None,
) -> None:
    """Run a pipeline, on a server of Kubeflow Pipelines or on this machine. Its parameters are checked first."""
    only_remote = {"--host": host, "--namespace": namespace, "--experiment": experiment, "--run-name": run_name}
    if local and (given := [option for option, value in only_remote.items() if value]):
        fail(f"{', '.join(given)}: not with --local, which uses no server", BAD_INPUT)
    if not (local or host or os.environ.get(HOST_VARIABLE)):
        fail(f"choose where to run: --local, or --host (or {HOST_VARIABLE})", BAD_INPUT)
    if timeout and not (wait or local):
        fail("--timeout: only with --wait or --local", BAD_INPUT)
    with pipeline_errors_exit(), interrupt_exits():
        if not local:  # before anything is compiled
            server_address(host)
            experiment_name(experiment)
            checked_name(run_name or "default", "run name")
        compiled = compile_pipeline(pipeline, CompileSettings(image, parallelism))
        values = parameter_values(compiled, param, params)
        if local:
            code = _run_here(compiled, values, timeout or None, output)
        else:
            print_warnings(compiled, values)
            server = connect(host, namespace=namespace)
            created = start_run(server, compiled, values, experiment=experiment, run_name=run_name)
            code = _report(server, compiled, created, wait, timeout or None, output)
    raise typer.Exit(code)


def _run_here(pipeline: CompiledPipeline, values: dict[str, Any], timeout: float | None, output: Format | None) -> int:
    folder = Path(_LOCAL_OUTPUTS).absolute()
    embedded = selected_home(None, None)
    ended = run_locally(
        pipeline,
        values,
        folder=folder,
        kubeconfig=embedded.kubeconfig if embedded is not None else None,
        timeout_seconds=timeout,
        on_line=lambda line: print_lines(line, error=True),
    )
    if ended.message:
        print_lines(ended.message, error=True)
    if output is not None:
        failures = [{**asdict(failure.task), "log": list(failure.log)} for failure in ended.failures]
        run = {"state": ended.state, "message": ended.message, "outputs": ended.outputs, "failed_tasks": failures}
        print_object({"pipeline": pipeline.name, "artifacts": ended.folder, **run}, output)
    else:
        print_lines(f"{pipeline.name} {ended.state}, artifacts in {ended.folder}")
    return int(ExitCode.succeeded if ended.state == SUCCEEDED else ExitCode.failed)


def _report(
    server: PipelineServer, pipeline: CompiledPipeline, created: Obj, wait: bool, timeout: float | None, output: Format | None
) -> int:
    """Print the run, after waiting for its end if asked to; returns the exit code."""
    run_id = str(created["run_id"])
    print_lines(f"run {run_id} ({created.get('display_name')}): {_link(server, run_id)}", error=output is not None or wait)
    run, logs = created, StepLogs(server, run_id, _print_note)
    if wait:
        with interrupt_exits(f"run {run_id} keeps running"):
            progress = TrainingProgress(logs, pipeline.groups, _print_change)
            run = follow_run(server, run_id, on_run=progress, on_outage=_print_outage, timeout_seconds=timeout)
    state = state_of(run)
    is_failed = wait and state != SUCCEEDED
    failures = _failures(logs.with_pods(run), pipeline, logs) if is_failed else []
    if is_failed:
        _print_failures(run, state, failures, logs)
    if output is not None:
        print_object(_facts(server, pipeline, run, failures), output)
    elif wait:
        print_lines(f"run {run_id} {state}")
    return int(ExitCode.failed if is_failed else ExitCode.succeeded)


def _print_change(name: str, state: str) -> None:
    print_lines(f"{name or 'run'} {state}", error=True)


def _print_note(text: str) -> None:
    print_lines(f"warning: {text}", error=True)


def _print_outage(error: ServerError) -> None:
    print_lines(f"waiting on: {error}", error=True)


def _failures(run: Obj, pipeline: CompiledPipeline, logs: StepLogs) -> list[tuple[FailedTask, list[str]]]:
    """Return the tasks that failed, each with the last lines of its log; of many tasks only the first have lines."""
    failed = failed_tasks(run, pipeline.groups)
    return [
        (task, log_tail(logs.last_lines(task.pod), LOG_LINES) if task.pod and number < _MOST_LOGS else [])
        for number, task in enumerate(failed)
    ]


def _print_failures(run: Obj, state: str, failures: list[tuple[FailedTask, list[str]]], logs: StepLogs) -> None:
    message = failure_message(run)
    print_lines(f"run {run.get('run_id')} {state}{f': {message}' if message else ''}", error=True)
    for task, lines in failures:
        said = f": {task.message}" if task.message else ""
        pod = f" (pod {task.pod})" if task.pod else ""
        print_lines(f"  {task.name} {task.state}{said}{pod}", error=True)
        if lines:
            print_lines("\n".join(f"    | {line}" for line in lines), error=True)
        elif task.pod:
            print_lines(f"    its log: {logs.command(task.pod)}", error=True)
        elif not task.message:
            print_lines("    the server names neither a reason nor a pod; the log of its pod says why", error=True)


def _facts(server: PipelineServer, pipeline: CompiledPipeline, run: Obj, failures: list[tuple[FailedTask, list[str]]]) -> Obj:
    run_id = str(run["run_id"])
    return {
        "pipeline": pipeline.name,
        "run_id": run_id,
        "run_name": run.get("display_name"),
        "experiment_id": run.get("experiment_id"),
        "state": state_of(run),
        "url": _link(server, run_id),
        "message": failure_message(run),
        "failed_tasks": [{**asdict(task), "log": lines} for task, lines in failures],
    }


def _link(server: PipelineServer, run_id: str) -> str:
    return f"{server.address}/#/runs/details/{run_id}"
