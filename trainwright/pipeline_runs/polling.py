"""Follows a run on a server to its end: polls with growing waits, and waits out failures of the server and of the network."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from trainwright.api.objects import Obj
from trainwright.backoff import Backoff
from trainwright.pipeline_runs.errors import RunDeleted, RunTimeout, ServerError
from trainwright.pipeline_runs.run_states import FINAL_STATES, state_of
from trainwright.pipeline_runs.server import PipelineServer
from trainwright.pipeline_runs.task_nodes import tasks_of

_CREDENTIALS = (401, 403)


@dataclass(frozen=True)
class Polling:
    """Pauses between requests whose answer is the same, and after failures; for how many seconds failures in a row are tolerated.

    Rejected credentials may be renewed meanwhile.
    """

    unchanged: Backoff = Backoff(2.0, 30.0, factor=1.5, jitter=0.2)
    failed: Backoff = Backoff(2.0, 30.0, jitter=0.2)
    outage_seconds: float = 600.0
    credentials_seconds: float = 180.0


POLLING = Polling()
OnChange = Callable[[str, str], None]
"""Called with a name, empty for the run itself, and its new state."""


def follow_run(
    server: PipelineServer,
    run_id: str,
    *,
    on_change: OnChange,
    on_outage: Callable[[ServerError], None],
    on_run: Callable[[Obj], None] = lambda _: None,
    groups: frozenset[str] = frozenset(),
    timeout_seconds: float | None = None,
    polling: Polling | None = None,
) -> Obj:
    """Wait until a run has ended, and return it.

    Args:
        server: The server.
        run_id: Id of the run on the server.
        on_change: Called for each new state of the run and of its tasks.
        on_outage: Called once for each series of requests that fail.
        on_run: Called with the run each time it is seen before its end.
        groups: Names of what consists of tasks in the pipeline; they are not reported.
        timeout_seconds: Maximum time; None has no limit.
        polling: Times between requests.

    Raises RunTimeout, RunDeleted, and ServerError for what does not pass, or lasts too long.
    """
    polling = polling or POLLING
    started = last_answer = time.monotonic()
    states, unchanged, failures = dict[str, str](), 1, 0
    refused_since: float | None = None
    while True:
        try:
            run = server.send(server.client.runs.run_service_get_run, run_id, answer="V2beta1Run")
        except ServerError as error:
            if error.status == 404:
                raise RunDeleted(f"run {run_id}: deleted while it was waited for") from None
            now, is_refusal = time.monotonic(), error.status in _CREDENTIALS
            refused_since = (refused_since or now) if is_refusal else None
            lasts = now - (refused_since or last_answer)
            if not (error.retryable or is_refusal) or lasts > (
                polling.credentials_seconds if is_refusal else polling.outage_seconds
            ):
                raise
            if not failures:
                on_outage(error)
            failures += 1
            wait = error.retry_after or polling.failed.pause(failures)
        else:
            last_answer, refused_since, failures = time.monotonic(), None, 0
            changes = _changes(states, run, groups)
            for name, state in changes:
                on_change(name, state)
            if states[""] in FINAL_STATES:
                return run
            on_run(run)
            unchanged = 1 if changes else unchanged + 1
            wait = polling.unchanged.pause(unchanged)
        if timeout_seconds is not None:
            left = timeout_seconds - (time.monotonic() - started)
            if left <= 0:
                raise RunTimeout(
                    f"run {run_id} did not end within {timeout_seconds:g} s; it is {states.get('', 'unknown')} and keeps running"
                )
            wait = min(wait, left)
        time.sleep(wait)


def _changes(states: dict[str, str], run: Obj, groups: frozenset[str]) -> list[tuple[str, str]]:
    """Record the states of a run and its tasks; returns those that are new, the run's last if it has ended."""
    current = {"": state_of(run), **{task.name: task.state for task in tasks_of(run, groups)}}
    changed = [(name, state) for name, state in current.items() if states.get(name) != state]
    states.update(current)
    if current[""] in FINAL_STATES:
        changed.sort(key=lambda change: change[0] == "")
    return changed
