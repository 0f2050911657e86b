"""Starts a run of a compiled pipeline on a server, once: a create whose answer is lost is looked up, and not repeated."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, field
from typing import Any

from trainwright.api.objects import Obj
from trainwright.pipeline_runs.compiled import CompiledPipeline
from trainwright.pipeline_runs.errors import ServerError, UnknownOutcome
from trainwright.pipeline_runs.parameters import check_submitted
from trainwright.pipeline_runs.server import PipelineServer
from trainwright.pipeline_runs.uploads import checked_name, experiment_id, experiment_name


@dataclass(frozen=True)
class RunRequest:
    """A run to start; empty texts have defaults."""

    pipeline: CompiledPipeline
    values: dict[str, Any] = field(default_factory=dict)
    experiment: str = ""
    run_name: str = ""


def default_run_name(pipeline: CompiledPipeline) -> str:
    """Return the name of the pipeline and the time of day, as kfp names runs."""
    return f"{pipeline.name} {time.strftime('%Y-%m-%d %H-%M-%S')}"


def start_run(server: PipelineServer, request: RunRequest) -> Obj:
    """Create a run, in its experiment, which is created if there is none, and return it.

    Raises BadParameters, BadPipeline for names, ServerError, and UnknownOutcome if the answer was lost and no such run is found.
    """
    check_submitted(request.values)
    name = checked_name(request.run_name or default_run_name(request.pipeline), "run name")
    experiment = experiment_name(request.experiment)
    mark = f"trainwright pipeline run {secrets.token_hex(8)}"
    run = {
        "display_name": name,
        "description": mark,
        "experiment_id": experiment_id(server, experiment),
        "pipeline_spec": request.pipeline.submitted_spec,
        "runtime_config": {"parameters": request.values},
    }
    try:
        created = server.retried(
            lambda: server.send(server.client.runs.run_service_create_run, run, answer="V2beta1Run"),
            can_retry=lambda error: error.retryable and not error.may_have_happened,
        )
    except ServerError as error:
        if not error.may_have_happened:
            raise
        created = _look_up(server, run, error, experiment)
    if not created.get("run_id"):
        raise ServerError(f"{server.address}: the answer has no run_id", status=200)
    return created


def _look_up(server: PipelineServer, run: Obj, error: ServerError, experiment: str) -> Obj:
    """Return the run that a create without an answer has made."""
    for seconds in server.retry_policy.look_up_seconds:
        time.sleep(seconds)
        runs = server.named(
            server.client.runs.run_service_list_runs,
            "runs",
            "V2beta1ListRunsResponse",
            run["display_name"],
            experiment_id=run["experiment_id"],
        )
        for found in runs:
            if found.get("description") == run["description"]:
                return found
    raise UnknownOutcome(
        f"{error}; the run may have been created all the same: look for {run['display_name']!r} in the experiment "
        f"{experiment!r} before you start another",
        error.status,
    )
