"""Stops the TrainJobs of deferred tasks that a user has ended: hundreds at once, if a DAG run is marked as failed.

Airflow cancels a trigger every second until it has ended, and the event loop and its default threads belong to all triggers. So the
work is a task apart from the trigger, in other threads, and its time is bounded. A job that could not be stopped is found by the
search for left jobs (`left_jobs`) and by CleanUpOperator.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

from trainwright.api.errors import ApiError, Forbidden, NotFound, Unauthorized
from trainwright.api.kinds import TRAINJOB
from trainwright.api.names import AWAITED_BY_ANNOTATION
from trainwright.backoff import Backoff
from trainwright.cluster import NoCluster
from trainwright.cluster.protocol import Cluster
from trainwright.jobs.state.cancel import CancelOutcome, CancelPolicy, cancel_owned_job
from trainwright.jobs.state.waiters import active_lease_of
from trainwright.operators.values.airflow_api import ENDED_BY_USER, GOES_ON, StateUnknown, TaskId, state_of
from trainwright.operators.values.connections import ConnectionNotDefined

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
    except StateUnknown as error:  # its task may go on: the search for left jobs looks again
        trigger.log.error("%s was not stopped, because it is not known whether its task was ended: %s", name, error)
        return
    if state in GOES_ON:  # only the triggerer ends: another one, or a worker, goes on
        trigger.log.info("the task is %s: %s is not changed", "still deferred" if state == "deferred" else state, name)
        return
    if trigger.on_clear == "keep" and state not in ENDED_BY_USER:  # of a sensor, whose next try may come
        trigger.log.info("the task is %s: %s is not changed", state or "cleared", name)
        return
    others = trigger.task_key if trigger.on_clear == "keep" else None
    outcome, is_stopped = await stop_job(trigger.connected, trainjob, trigger.on_cancel if state else trigger.on_clear, others)
    log = trigger.log.info if is_stopped else trigger.log.error
    log("the task was ended by a user; %s%s: %s", name, "" if is_stopped else " was not stopped", outcome)


async def stop_job(
    connected: Callable[[], Awaitable[Any]], trainjob: dict[str, Any], on_cancel: str, sensor: dict[str, Any] | None = None
) -> tuple[str, bool]:
    """Stop the job of a task that has ended, trying again while its API server cannot be reached. `connected` returns the cluster.

    A `sensor`, by its task, suspends no job that another one waits for, see `stop_as_sensor`. Returns the outcome, and whether nothing
    is left to do.
    """
    deadline, failures = time.monotonic() + STOP_SECONDS, 0
    while True:
        try:
            cluster = await connected()
            return await asyncio.get_running_loop().run_in_executor(_pool, _cancel, cluster, trainjob, on_cancel, sensor), True
        except (ApiError, NoCluster, ValueError, ConnectionNotDefined) as error:
            is_final = isinstance(error, Forbidden | Unauthorized | ValueError | ConnectionNotDefined)
            if is_final or time.monotonic() >= deadline:  # a retry cannot succeed, or the API server has been away for too long
                return str(error), False
        failures += 1
        await asyncio.sleep(_BACKOFF.pause(failures))


def _cancel(cluster: Cluster, trainjob: dict[str, Any], on_cancel: str, sensor: dict[str, Any] | None) -> str:
    if sensor is not None:  # it has not submitted the job
        return stop_as_sensor(cluster, trainjob, on_cancel, sensor, timeout_seconds=None)
    return cancel_owned_job(cluster, trainjob, CancelPolicy(on_cancel), timeout_seconds=None)


def stop_as_sensor(cluster: Cluster, trainjob: dict[str, Any], on_cancel: str, task: dict[str, Any], **options: Any) -> str:
    """Stop the job of a sensor, which has not submitted it: it suspends none that another task or step waits for.

    `options` are those of `cancel_owned_job`. Returns the outcome. Raises ApiError.
    """
    metadata = trainjob["metadata"]
    try:
        current = cluster.get(TRAINJOB, metadata["name"], metadata["namespace"])
    except NotFound:
        return str(CancelOutcome.gone)
    if on_cancel == CancelPolicy.suspend and _has_another_waiter(current, task):  # that task goes on waiting for the job
        return "it keeps running: another task waits for it"
    return cancel_owned_job(cluster, trainjob, CancelPolicy(on_cancel), **options)


def _has_another_waiter(trainjob: dict[str, Any], task: dict[str, Any]) -> bool:
    """Whether the job notes another task, or has the lease of a step that does not note itself."""
    noted = (trainjob["metadata"].get("annotations") or {}).get(AWAITED_BY_ANNOTATION)
    if not noted:  # not a task, but a step with a lease may wait
        lease = active_lease_of(trainjob)
        return lease is not None and lease.seconds_left(datetime.now(UTC)) > 0
    try:
        found = json.loads(noted)
        return any(found.get(name) != task.get(name) for name in ("dag_id", "run_id", "task_id"))
    except (ValueError, AttributeError, RecursionError):  # what cannot be read may be the note of another task
        return True
