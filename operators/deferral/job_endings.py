"""Stops the TrainJobs of deferred tasks that a user has ended: hundreds at once, if a DAG run is marked as failed.

Airflow cancels a trigger every second until it has ended, and the event loop and its default threads belong to all triggers. So the
work is a task apart from the trigger, in other threads, and its time is bounded. A job that could not be stopped is found by the
search for left jobs (`left_jobs`) and by CleanUpOperator.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from trainwright.backoff import Backoff
from trainwright.operators.values.airflow_calls import state_of
from trainwright.operators.values.defined_connection import ConnectionNotDefined
from trainwright.operators.values.task_state import GOES_ON, StateUnknown, TaskId

if TYPE_CHECKING:
    from trainwright.cluster.protocol import Cluster


STOP_SECONDS = 120.0
"""How long an API server that cannot be reached is tried again, for one job."""
_BACKOFF = Backoff(0.5, 10.0)
_pool = ThreadPoolExecutor(16, thread_name_prefix="stop-jobs")


async def end_with_task(trigger: Any, trainjob: dict[str, Any]) -> None:
    """Stop the trigger's job unless its task goes on, and say so in one line of its log. Never raises."""
    name = f"TrainJob {trigger.namespace}/{trigger.name}"
    try:
        await _end_with_task(trigger, trainjob, name)
    except Exception as error:  # nobody awaits it: what it does not say here is lost, and the job trains on
        trigger.log.error("%s was not stopped: %s: %s", name, type(error).__name__, error)


async def _end_with_task(trigger: Any, trainjob: dict[str, Any], name: str) -> None:
    try:
        state = await state_of(TaskId(**trigger.task_key))
    except StateUnknown as error:
        trigger.log.error("%s was not stopped, because it is not known whether its task was ended: %s", name, error)
        return
    if state in GOES_ON:
        trigger.log.info("the task is %s: %s is not changed", "still deferred" if state == "deferred" else state, name)
        return
    if not state and trigger.on_clear == "keep":  # a sensor's next try waits for the same job
        trigger.log.info("the task was cleared: %s is not changed", name)
        return
    outcome, is_stopped = await stop_job(trigger.connected, trainjob, trigger.on_cancel if state else trigger.on_clear)
    log = trigger.log.info if is_stopped else trigger.log.error
    log("the task was ended by a user; %s%s: %s", name, "" if is_stopped else " was not stopped", outcome)


async def stop_job(connected: Callable[[], Awaitable[Any]], trainjob: dict[str, Any], on_cancel: str) -> tuple[str, bool]:
    """Stop the job of a task that has ended, trying again while its API server cannot be reached. `connected` returns the cluster.

    Returns the outcome, and whether nothing is left to do.
    """
    from trainwright.api.errors import ApiError, Forbidden, Unauthorized
    from trainwright.cluster import NoCluster

    deadline, failures = time.monotonic() + STOP_SECONDS, 0
    while True:
        try:
            cluster = await connected()
            return await asyncio.get_running_loop().run_in_executor(_pool, _cancel, cluster, trainjob, on_cancel), True
        except (ApiError, NoCluster, ValueError, ConnectionNotDefined) as error:
            is_final = isinstance(error, Forbidden | Unauthorized | ValueError | ConnectionNotDefined)
            if is_final or time.monotonic() >= deadline:
                return str(error), False
        failures += 1
        await asyncio.sleep(_BACKOFF.pause(failures))


def _cancel(cluster: Cluster, trainjob: dict[str, Any], on_cancel: str) -> str:
    from trainwright.jobs.state.cancel import CancelPolicy, cancel_owned_job

    return cancel_owned_job(cluster, trainjob, CancelPolicy(on_cancel), timeout_seconds=None)
