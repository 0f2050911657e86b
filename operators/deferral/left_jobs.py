"""Finds the TrainJobs of tasks that a user has ended while no triggerer could stop them: none ran, or it was killed just then.

The first trigger of a triggerer in a namespace looks at the jobs there that note who waits for them. A job is stopped only if Airflow
says that its task has ended: for a task that it does not know, another Airflow may wait.
"""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING, Any

from trainwright.operators.deferral.job_endings import stop_job
from trainwright.operators.values.airflow_calls import apart, state_of
from trainwright.operators.values.task_state import ENDED, StateUnknown, TaskId

if TYPE_CHECKING:
    from trainwright.cluster.protocol import Cluster
    from trainwright.cluster.shared_watch import Subscription


DELAY_SECONDS = 15.0
"""After the first trigger of a triggerer: the others are started by then, and their jobs need not be asked about."""
_SYNC_SECONDS = 1.0
log = logging.getLogger(__name__)
_searched: set[tuple[Any, ...]] = set()
_awaited: set[str] = set()
"""UIDs of the jobs that triggers of this process wait for."""


def begin_waiting(trigger: Any, follower: Subscription) -> None:
    """Note that the trigger waits for its job. The first one of a connection in a namespace begins a search for jobs that are left."""
    _awaited.add(trigger.uid)
    key = (id(asyncio.get_running_loop()), trigger.conn_id, trigger.submission_mode, trigger.namespace)
    if key not in _searched:
        _searched.add(key)
        apart(_search(key, follower))


def end_waiting(trigger: Any) -> None:
    """Note that the trigger waits no more."""
    _awaited.discard(trigger.uid)


def is_awaited_here(uid: str) -> bool:
    """Whether a trigger of this process waits for the job, as in a test of a task; that of a deferred task is in a triggerer."""
    return uid in _awaited


async def _search(key: tuple[Any, ...], follower: Subscription) -> None:
    await asyncio.sleep(DELAY_SECONDS)
    reflector = follower.reflector
    while not reflector.synced.is_set():
        if reflector.stop.is_set():  # the last trigger has ended; the next one looks
            _searched.discard(key)
            return
        await asyncio.sleep(_SYNC_SECONDS)
    for trainjob in list(reflector.known.values()):
        if trainjob["metadata"]["uid"] not in _awaited and (task := _awaiting_task(trainjob)) is not None:
            await _stop_if_ended(follower.cluster, trainjob, *task)


def _awaiting_task(trainjob: dict[str, Any]) -> tuple[TaskId, str] | None:
    """The task that waits for a job that runs or will run, and its `on_cancel`; None if the job notes none."""
    from trainwright.api.names import AWAITED_BY_ANNOTATION
    from trainwright.jobs.state.waiter_lease import is_active

    noted = (trainjob["metadata"].get("annotations") or {}).get(AWAITED_BY_ANNOTATION)
    if not noted or not is_active(trainjob):
        return None
    try:
        found = json.loads(noted)
        on_cancel = str(found.pop("on_cancel"))
        return TaskId(**found), on_cancel
    except (ValueError, TypeError, KeyError, AttributeError):
        log.warning("event=awaiting_task_unreadable name=%s value=%.200r", trainjob["metadata"]["name"], noted)
        return None


async def _stop_if_ended(cluster: Cluster, trainjob: dict[str, Any], task: TaskId, on_cancel: str) -> None:
    name = f"{trainjob['metadata']['namespace']}/{trainjob['metadata']['name']}"
    try:
        state = await state_of(task)
    except StateUnknown as error:
        log.warning("event=left_job_not_judged trainjob=%s error=%s", name, error)
        return
    if state not in ENDED:
        return

    async def connected() -> Any:
        return cluster

    outcome, is_stopped = await stop_job(connected, trainjob, on_cancel)
    write = log.warning if is_stopped else log.error
    write("event=left_job trainjob=%s dag=%s task=%s state=%s outcome=%r", name, task.dag_id, task.task_id, state, outcome)
