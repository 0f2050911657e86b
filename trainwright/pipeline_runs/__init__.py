"""Runs of pipelines: compiling them, running them here or on a server of Kubeflow Pipelines, and schedules there."""

from trainwright.pipeline_runs.compiled import CompiledPipeline
from trainwright.pipeline_runs.cron import CronExpression
from trainwright.pipeline_runs.errors import PipelineError, ServerError
from trainwright.pipeline_runs.local_run import LocalRun, run_locally
from trainwright.pipeline_runs.parameters import ParameterSpec, check_values, given_values
from trainwright.pipeline_runs.polling import follow_run
from trainwright.pipeline_runs.schedule import Schedule, ScheduleOutcome, delete_schedule, set_schedule
from trainwright.pipeline_runs.server import PipelineServer, connect
from trainwright.pipeline_runs.source import CompileSettings, compile_pipeline, shipped_pipelines
from trainwright.pipeline_runs.submit import RunRequest, start_run

__all__ = [
    "CompileSettings",
    "CompiledPipeline",
    "CronExpression",
    "LocalRun",
    "ParameterSpec",
    "PipelineError",
    "PipelineServer",
    "RunRequest",
    "Schedule",
    "ScheduleOutcome",
    "ServerError",
    "check_values",
    "compile_pipeline",
    "connect",
    "delete_schedule",
    "follow_run",
    "given_values",
    "run_locally",
    "set_schedule",
    "shipped_pipelines",
    "start_run",
]
