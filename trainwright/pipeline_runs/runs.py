"""Starts a run of a compiled pipeline on a server, once, and follows it to its end.

A create whose answer is lost is looked up by a mark in its description, and not repeated. kfp's `run_pipeline` takes no description;
its `wait_for_run_completion` ends at the first failure of the network, and never after CANCELED.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from trainwright.api.objects import Obj
from trainwright.backoff import Backoff
from trainwright.pipeline_runs.compiled import CompiledPipeline
from trainwright.pipeline_runs.errors import RunDeleted, RunTimeout, ServerError, UnknownOutcome
from trainwright.pipeline_runs.parameters import check_submitted
from trainwright.pipeline_runs.server import PipelineServer, RetryPolicy, checked_name, experiment_name

LOOK_UP_SECONDS = (1.0, 3.0, 6.0)
"""Waits before the look-ups of a run whose create got no answer: it may still be in progress."""
SUCCEEDED = "SUCCEEDED"
FINAL_STATES = frozenset({SUCCEEDED, "FAILED", "SKIPPED", "CANCELED", "ERROR"})
UNCHANGED = Backoff(2.0, 30.0, factor=1.5, jitter=0.2)
"""Pauses between requests whose answer is the same."""
OUTAGE = RetryPolicy(600.0, 180.0, Backoff(2.0, 30.0, jitter=0.2))
"""How failures of the server are waited out."""


def state_of(obj: Obj) -> str:
    """Return the state of a run or a task; PENDING as long as the server has none."""
    state = str(obj.get("state") or "")
    return "PENDING" if state in ("", "RUNTIME_STATE_UNSPECIFIED") else state


def start_run(
    server: PipelineServer, pipeline: CompiledPipeline, values: dict[str, Any], *, experiment: str = "", run_name: str = ""
) -> Obj:
    """Create a run, in its experiment, which is created if there is none, and return it; empty names have defaults.

    Raises BadParameters, BadPipeline for names, ServerError, and UnknownOutcome if the answer was lost and no such run is found.
    """
    check_submitted(values)
    experiment = experiment_name(experiment)
    run = {
        "display_name": checked_name(run_name or f"{pipeline.name} {time.strftime('%Y-%m-%d %H-%M-%S')}", "run name"),
        "description": f"trainwright pipeline run {secrets.token_hex(8)}",
        "experiment_id": server.experiment_id(experiment),
        "pipeline_spec": pipeline.submitted_spec,
        "runtime_config": {"parameters": values},
    }
    try:
        policy = replace(server.retry_policy, can_retry=lambda error: error.retryable and not error.may_have_happened)
        created = server.retried(lambda: server.client.runs.run_service_create_run(run), policy)
    except ServerError as error:
        if not error.may_have_happened:  # nothing was created
            raise
        created = _look_up(server, run, error, experiment)
    return dict(created.to_dict())


def _look_up(server: PipelineServer, run: Obj, error: ServerError, experiment: str) -> Any:
    """Return the run that a create without an answer has made."""
    name = run["display_name"]
    for seconds in LOOK_UP_SECONDS:
        time.sleep(seconds)
        for found in server.find(server.client.list_runs, "display_name", name, experiment_id=run["experiment_id"]):
            if found.description == run["description"]:  # it is random: another run may have the same name
                return found
    raise UnknownOutcome(
        f"{error}; the run may have been created all the same: look for {name!r} in the experiment {experiment!r} before you start "
        "another",
        error.status,
    )


def follow_run(
    server: PipelineServer,
    run_id: str,
    *,
    on_run: Callable[[Obj], bool],
    on_outage: Callable[[ServerError], None],
    timeout_seconds: float | None = None,
) -> Obj:
    """Wait until a run has ended, and return it.

    Args:
        server: The server.
        run_id: Id of the run on the server.
        on_run: Called with the run each time it is seen; returns whether something is new.
        on_outage: Called once for each series of requests that fail.
        timeout_seconds: Maximum time; None has no limit.

    Raises RunTimeout, RunDeleted, and ServerError for what does not pass, or lasts too long.
    """
    left = math.inf if timeout_seconds is None else timeout_seconds
    end, state, unchanged, wait = time.monotonic() + left, "unknown", 1, 0.0
    while True:
        seconds, credentials_seconds = min(OUTAGE.seconds, left), min(OUTAGE.credentials_seconds, left)
        policy = replace(OUTAGE, seconds=seconds, credentials_seconds=credentials_seconds, on_outage=on_outage)
        try:
            run = dict(server.retried(lambda: server.client.get_run(run_id), policy).to_dict())
        except ServerError as error:
            if error.status == 404:  # a run is there from its creation on, so it was deleted
                raise RunDeleted(f"run {run_id}: deleted while it was waited for") from None
            if time.monotonic() < end:  # later, the timeout below is the reason that people can use
                raise
        else:
            state, is_new = state_of(run), on_run(run)
            if state in FINAL_STATES:
                return run
            unchanged = 1 if is_new else unchanged + 1
            wait = UNCHANGED.pause(unchanged)
        if (left := end - time.monotonic()) <= 0:
            raise RunTimeout(f"run {run_id} did not end within {timeout_seconds:g} s; it is {state} and keeps running")
        time.sleep(min(wait, left))
