"""Waits for a TrainJob in Airflow's triggerer, so that nobody holds a worker: all waiting tasks of a connection share one watch.

What the trigger says is only that there is something to see; the task reads the job itself when it goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from trainwright.operators.hook import TrainwrightHook
from trainwright.operators.task_state import TaskId
from trainwright.operators.trigger_log import TriggerLog

SETTLE_SECONDS = 10.0
"""An event fired sooner after the deferral can overtake the executor's own report, and Airflow 3.3 then fails the task."""
LOG_INTERVAL_SECONDS = 60.0
LOG_BYTES = 16 * 1024 * 1024
_LOOK_SECONDS = 30.0
"""At most until a look at whether the cluster is there; not all triggers at once, since their loop would stand still."""
_watches: Any = None


class TrainJobTrigger(BaseTrigger):
    """Fires once, when the TrainJob has ended, is gone, or a deadline has passed.

    :param conn_id: as the operator's.
    :param name: of the TrainJob in `namespace`; uid: of that very one.
    :param task: the task that waits: dag_id, task_id, run_id, map_index.
    :param stopping: what becomes of the job when a user ends the task: suspend, delete or keep.
    :param deadlines: seconds for `queue`, `start` and `run`; absent or None waits. They count anew in another triggerer.
    :param until: seconds since the epoch when the wait ends in any case.
    :param submission_mode: in which the job was submitted, trainjob or jobset.
    :param settle_seconds: the least time between the start of the trigger and its event.
    :param logs: whose log is shown, see the operator; log_bytes: how much of it; log_interval: seconds between two looks at it.

    The event: `name`, `namespace` and `uid` of the job, `outcome` (succeeded, failed, deleted, deadline, error), `message`,
    `what` deadline it was, the `metrics` last reported, the `submission_mode`, and `until` as it was given.
    """

    def __init__(
        self,
        *,
        conn_id: str | None,
        namespace: str,
        name: str,
        uid: str,
        task: dict[str, Any],
        stopping: str = "suspend",
        deadlines: dict[str, float | None] | None = None,
        until: float | None = None,
        settle_seconds: float = SETTLE_SECONDS,
        submission_mode: str = "",
        logs: str = "none",
        log_bytes: int = LOG_BYTES,
        log_interval: float = LOG_INTERVAL_SECONDS,
    ):
        super().__init__()
        self.conn_id, self.namespace, self.name, self.uid = conn_id, namespace, name, uid
        self.task_key, self.stopping = task, stopping
        self.deadlines, self.until, self.settle_seconds = deadlines or {}, until, settle_seconds
        self.submission_mode = submission_mode
        self.logs, self.log_bytes, self.log_interval = logs, log_bytes, log_interval

    def serialize(self) -> tuple[str, dict[str, Any]]:
        arguments = {
            "conn_id": self.conn_id,
            "namespace": self.namespace,
            "name": self.name,
            "uid": self.uid,
            "task": self.task_key,
            "stopping": self.stopping,
            "deadlines": self.deadlines,
            "until": self.until,
            "settle_seconds": self.settle_seconds,
            "submission_mode": self.submission_mode,
            "logs": self.logs,
            "log_bytes": self.log_bytes,
            "log_interval": self.log_interval,
        }
        return "trainwright.operators.trigger.TrainJobTrigger", arguments

    async def run(self) -> AsyncIterator[TriggerEvent]:
        from trainwright.api.errors import ApiError
        from trainwright.cluster import NoCluster

        began = time.monotonic()
        try:
            event = await self._end()
        except (ApiError, NoCluster) as error:
            event = {"outcome": "error", "message": str(error)}
        await asyncio.sleep(max(0.0, self.settle_seconds - (time.monotonic() - began)))
        yield TriggerEvent({**self._job()["metadata"], "submission_mode": self.submission_mode, "until": self.until, **event})

    async def on_kill(self) -> None:
        """A user has cleared the task, or marked it as failed or as succeeded.

        Airflow calls this also when another triggerer takes the trigger over; the task still waits then, and the job stays.
        """
        task = TaskId(**self.task_key)
        if await asyncio.to_thread(task.state) == "deferred":
            self.log.info("the task still waits: TrainJob %s/%s is left alone", self.namespace, self.name)
            return
        became = await asyncio.to_thread(self._stop)
        self.log.info("the task was ended by a user; TrainJob %s/%s: %s", self.namespace, self.name, became)

    def _stop(self) -> str:
        from trainwright.jobs.cancel import Stopping, stop_job

        return stop_job(TrainwrightHook(self.conn_id, self.submission_mode).get_conn(), self._job(), Stopping(self.stopping))

    def _job(self) -> dict[str, Any]:
        """What is known of the job before it is seen."""
        return {"metadata": {"name": self.name, "namespace": self.namespace, "uid": self.uid}, "spec": {}}

    async def _end(self) -> dict[str, Any]:
        """Follow the job until there is something to say."""
        from trainwright.api.kinds import TRAINJOB

        seen = _Latest()
        hook, key = TrainwrightHook(self.conn_id, self.submission_mode), (self.conn_id, self.submission_mode)
        watches = _shared_watches()
        follower = await asyncio.to_thread(watches.follow, key, hook.get_conn, TRAINJOB, self.namespace, self.name, seen.put)
        try:
            return await self._follow(follower, seen)
        finally:
            watches.leave(follower)

    async def _follow(self, follower: Any, seen: _Latest) -> dict[str, Any]:
        from trainwright.jobs import Deadlines, TrainJobDeleted
        from trainwright.jobs.wait import Waited
        from trainwright.jobs.watching import check_reachable

        waited = Waited(self._job(), Deadlines(**self.deadlines))
        told = TriggerLog(self, follower)
        try:
            while True:
                progress = await told.saw(waited.trainjob)
                if progress is not None and progress.phase.is_final:
                    return {"outcome": progress.phase.value.lower(), "message": "", "metrics": dict(progress.metrics)}
                if late := waited.overdue():
                    return {"outcome": "deadline", "message": str(late), "what": late.what}
                if self.until is not None and time.time() >= self.until:
                    return {"outcome": "deadline", "message": f"TrainJob {self.namespace}/{self.name} took too long"}
                change = await seen.take(min(self._next_look(waited.left()), told.next_look()))
                if change is not None:
                    waited.saw(*change)
                    continue
                check_reachable(follower.reflector)
                if follower.is_absent():
                    raise waited.gone()
        except TrainJobDeleted as gone:
            return {"outcome": "deleted", "message": str(gone)}
        finally:
            told.close()

    def _next_look(self, left: float) -> float:
        until = self.until - time.time() if self.until is not None else left
        return max(0.01, min(_LOOK_SECONDS * random.uniform(0.5, 1.0), left, until))


class _Latest:
    """The last change that was told and not yet taken: told in the watch's thread, taken on the loop."""

    __slots__ = ("_change", "_loop", "_taker")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._change: tuple[str, dict[str, Any]] | None = None
        self._taker: asyncio.Future[None] | None = None

    def put(self, kind: str, obj: dict[str, Any]) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._put, (kind, obj))

    def _put(self, change: tuple[str, dict[str, Any]]) -> None:
        self._change = change
        if self._taker is not None and not self._taker.done():
            self._taker.set_result(None)

    async def take(self, seconds: float) -> tuple[str, dict[str, Any]] | None:
        """The change, as soon as there is one; None when none came in that time."""
        if self._change is None:
            self._taker = self._loop.create_future()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._taker
        change, self._change = self._change, None
        return change


def _shared_watches() -> Any:
    """Those of this process; made late, since a trigger's module is imported wherever a DAG is parsed."""
    global _watches
    if _watches is None:
        from trainwright.cluster.shared_watch import SharedWatches
        from trainwright.jobs.glimpse import glimpse

        _watches = SharedWatches(glimpse)
    return _watches
