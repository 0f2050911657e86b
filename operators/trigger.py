"""Waits for a TrainJob in Airflow's triggerer, without occupying a worker: all waiting tasks of a connection share one watch.

The event only says that the wait is over; the task reads the job itself when it resumes. While it
waits, a trigger keeps the lease of its task on the job: if no triggerer runs any more, somebody else may stop the job after a
while. A user may end a deferred task while no triggerer runs, and then nothing tells the job.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from trainwright.api.conditions import is_finished
from trainwright.api.errors import ApiError
from trainwright.api.kinds import TRAINJOB
from trainwright.cluster import NoCluster
from trainwright.cluster.protocol import Cluster
from trainwright.cluster.reflector import SharedWatches, Subscription, Watched
from trainwright.jobs import Deadlines, TrainJobDeleted
from trainwright.jobs.diagnosis.errors import CannotStart, NodeLost, TooManyRestarts
from trainwright.jobs.state.waiters import RENEWALS, lease_seconds
from trainwright.jobs.state.watched_pods import trim_trainjob
from trainwright.jobs.wait.follow_job import JobState
from trainwright.jobs.wait.give_up import stopped_early_message
from trainwright.jobs.wait.job_watch import check_reachable
from trainwright.jobs.wait.keep_lease import renew_lease
from trainwright.operators.deferral.job_endings import end_with_task
from trainwright.operators.deferral.trigger_log import TriggerLog
from trainwright.operators.hook import TrainwrightHook
from trainwright.operators.values.airflow_api import apart
from trainwright.operators.values.rendered_values import LOG_POLL_INTERVAL_SECONDS, MIN_DEFER_SECONDS
from trainwright.submission.suspension import early_stop_reason

LOG_BYTES = 16 * 1024 * 1024
_CHECK_SECONDS = 30.0
"""Maximum interval between checks that the cluster is reachable. Jittered, so that the checks do not block the event loop at once."""
_watches = SharedWatches(trim_trainjob)
_END_SECONDS = 25.0
"""How long a trigger outlives its cancellation, so that what became of its job is in the log of its task: Airflow waits for 30 s."""
threads = ThreadPoolExecutor(4, thread_name_prefix="trigger")
"""For what blocks: the default threads of the event loop also write the log of all triggers."""
_lease_threads = ThreadPoolExecutor(4, thread_name_prefix="trigger-lease")
_awaited: set[str] = set()
"""UIDs of the jobs that triggers of this process wait for."""


def is_awaited_here(uid: str) -> bool:
    """Whether a trigger of this process waits for the job, as in a test of a task; that of a deferred task is in a triggerer."""
    return uid in _awaited


class TrainJobTrigger(BaseTrigger):
    """Fires once, when the TrainJob has ended or was deleted, or a deadline has passed.

    :param conn_id: connection, as in the operator.
    :param namespace: namespace of the TrainJob.
    :param name: name of the TrainJob.
    :param uid: UID of the TrainJob; another job of the same name is ignored.
    :param task: the task that waits: dag_id, task_id, run_id, map_index.
    :param on_cancel: what to do with the job when a user ends the task: suspend, delete or keep.
    :param on_clear: the same when a user clears the task; defaults to on_cancel.
    :param deadlines: seconds for `queue`, `start` and `run`; absent or None means no limit. They restart in another triggerer.
    :param until: time at which the wait ends in any case, in seconds since the epoch.
    :param submission_mode: mode in which the job was submitted, trainjob or jobset.
    :param min_defer_seconds: minimum time between the start of the trigger and its event.
    :param logs: whose log is shown, see the operator.
    :param log_bytes: maximum bytes of log that are shown.
    :param log_poll_interval: seconds between two polls of the log.
    :param fail_if_stuck: whether the wait ends as soon as the job can never start.
    :param fail_on_divergence: whether the wait ends as soon as the loss or the gradients are not finite in several reports.
    :param restarts: how often pods may fail and be started again; None: as often as the runtime says.
    :param lost_node_timeout_seconds: maximum seconds for which pods may not end on a lost node.
    :param lease_seconds: seconds after which the job may be suspended by others if no triggerer waits for it; 0: never.

    The event: `name`, `namespace` and `uid` of the job, `outcome` (succeeded, failed, failing, diverged, stopped-early, deleted,
    deadline, stuck, error), `message`, the `divergence`, `what` (the exceeded deadline, or the error's class), the `metrics` last
    reported, what was `observed` of failed pods, what it `started_from`, its `usage`, `submission_mode`, and `until` as given.
    """

    lease_retry_seconds = 15.0
    """Seconds until the first renewal of the lease at the latest, and after a failed one; not an argument, which would be stored."""

    def __init__(
        self,
        *,
        conn_id: str | None,
        namespace: str,
        name: str,
        uid: str,
        task: dict[str, Any],
        on_cancel: str = "suspend",
        on_clear: str = "",
        deadlines: dict[str, float | None] | None = None,
        until: float | None = None,
        min_defer_seconds: float = MIN_DEFER_SECONDS,
        submission_mode: str = "",
        logs: str = "none",
        log_bytes: int = LOG_BYTES,
        log_poll_interval: float = LOG_POLL_INTERVAL_SECONDS,
        fail_if_stuck: bool = True,
        fail_on_divergence: bool = True,
        lost_node_timeout_seconds: float | None = None,
        restarts: int | None = None,
        lease_seconds: int = 0,
    ):
        super().__init__()  # type: ignore[no-untyped-call]
        self.conn_id, self.namespace, self.name, self.uid = conn_id, namespace, name, uid
        self.task_key, self.on_cancel, self.on_clear = task, on_cancel, on_clear or on_cancel
        self.deadlines, self.until, self.min_defer_seconds = deadlines or {}, until, min_defer_seconds
        self.submission_mode = submission_mode
        self.logs, self.log_bytes, self.log_poll_interval = logs, log_bytes, log_poll_interval
        self.fail_if_stuck, self.lost_node_timeout_seconds = fail_if_stuck, lost_node_timeout_seconds
        self.fail_on_divergence = fail_on_divergence
        self.lease_seconds, self.restarts = lease_seconds, restarts
        self._follower: Subscription | None = None
        self._ending: asyncio.Task[None] | None = None

    def serialize(self) -> tuple[str, dict[str, Any]]:
        arguments = {
            "conn_id": self.conn_id,
            "namespace": self.namespace,
            "name": self.name,
            "uid": self.uid,
            "task": self.task_key,
            "on_cancel": self.on_cancel,
            "on_clear": self.on_clear,
            "deadlines": self.deadlines,
            "until": self.until,
            "min_defer_seconds": self.min_defer_seconds,
            "submission_mode": self.submission_mode,
            "logs": self.logs,
            "log_bytes": self.log_bytes,
            "log_poll_interval": self.log_poll_interval,
            "fail_if_stuck": self.fail_if_stuck,
            "fail_on_divergence": self.fail_on_divergence,
            "lost_node_timeout_seconds": self.lost_node_timeout_seconds,
            "lease_seconds": self.lease_seconds,
            "restarts": self.restarts,
        }
        return "trainwright.operators.trigger.TrainJobTrigger", arguments

    async def run(self) -> AsyncIterator[TriggerEvent]:
        began = time.monotonic()
        try:
            try:
                event = await self._end()
            except (ApiError, NoCluster) as error:  # the worker reads the job itself, and says what is wrong
                event = {"outcome": "error", "message": str(error)}
            except Exception as error:  # the worker waits: without an event, `airflow tasks test` ends and leaves the job
                self.log.warning("the trigger of TrainJob %s/%s failed", self.namespace, self.name, exc_info=error)
                event = {"outcome": "error", "message": f"{type(error).__name__}: {error}"}
            await asyncio.sleep(max(0.0, self.min_defer_seconds - (time.monotonic() - began)))
        except asyncio.CancelledError as cancelled:
            # Without a message, the triggerer of Airflow 3.3 shuts down; earlier versions do not tell, see `on_kill`.
            if cancelled.args or not hasattr(BaseTrigger, "on_kill"):
                await self._end_with_task()
            raise
        payload = {**self._job()["metadata"], "submission_mode": self.submission_mode, "until": self.until, **event}
        yield TriggerEvent(payload)  # type: ignore[no-untyped-call]

    async def on_kill(self) -> None:
        """A user has cleared the task, or marked it as failed or as succeeded.

        Airflow 3.3 also calls this when another triggerer takes over the trigger. It does not call it if its next cancellation, a
        second later, comes first; Airflow 3.1 and 3.2 never call it. So a cancellation while the trigger runs has the same effect,
        except for one without a message in Airflow 3.3: the triggerer is shutting down.
        """
        await self._end_with_task()

    async def _end_with_task(self) -> None:
        """Stop the job unless the task goes on, in the background. Waits for it, whatever cancellations come, but not for ever."""
        # No task is known yet that may have ended, or the job is to run on.
        if not self.task_key or self.on_cancel == "keep":
            return
        if self._ending is None:
            self._ending = apart(end_with_task(self, self._job()))
        deadline = time.monotonic() + _END_SECONDS
        while not self._ending.done() and (left := deadline - time.monotonic()) > 0:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({self._ending}, timeout=left)

    async def connected(self) -> Cluster:
        """The cluster of the job. Raises NoCluster, ApiError, ValueError, and Airflow's error for an unknown connection."""
        if self._follower is not None:  # the watch is connected already
            return self._follower.cluster
        return await TrainwrightHook(self.conn_id, self.submission_mode).aget_conn()

    def _job(self) -> dict[str, Any]:
        """The job as known before its first read: only its identity."""
        return {"metadata": {"name": self.name, "namespace": self.namespace, "uid": self.uid}, "spec": {}}

    async def _end(self) -> dict[str, Any]:
        """Follow the job until the wait is over; returns the event."""
        seen, loop = _LatestValue(), asyncio.get_running_loop()
        hook, key = TrainwrightHook(self.conn_id, self.submission_mode), (self.conn_id, self.submission_mode)
        connect = partial(hook.connect, await hook.recent_settings())
        subscribe = partial(_watches.subscribe, key, connect, Watched(TRAINJOB, self.namespace), self.name, seen.put)
        subscription = loop.run_in_executor(threads, subscribe)
        try:
            self._follower = follower = await asyncio.shield(subscription)
        except asyncio.CancelledError:  # the thread goes on, and nobody else would end what it subscribes
            subscription.add_done_callback(lambda done: None if done.exception() else _watches.unsubscribe(done.result()))
            raise
        _awaited.add(self.uid)
        try:
            return await self._follow(follower, seen)
        finally:
            _awaited.discard(self.uid)
            _watches.unsubscribe(follower)

    async def _follow(self, follower: Subscription, seen: _LatestValue) -> dict[str, Any]:
        waited = JobState(self._job(), Deadlines(**self.deadlines))
        log, lease = TriggerLog(self, follower), TriggerLease(self, self.lease_seconds, self.lease_retry_seconds)
        try:
            while True:
                progress = await log.observe(waited.trainjob)
                if progress is not None and progress.phase.is_final:
                    outcome = progress.phase.value.lower()
                    has_failed = outcome == "failed"
                    facts = {
                        "observed": log.observed if has_failed else {},
                        "seconds": log.seconds,
                        "started_from": log.started_from,
                    }
                    facts["usage"] = {} if has_failed else await log.usage(waited.trainjob)
                    return {"outcome": outcome, "message": "", "metrics": dict(progress.metrics), **facts}
                # The worker stops the job: all further steps are wasted.
                if self.fail_on_divergence and (diverged := log.divergence):
                    return {"outcome": "diverged", "message": diverged.describe(), "divergence": diverged.as_dict()}
                if reason := early_stop_reason(waited.trainjob):  # a trial of a sweep; its task is skipped
                    return {"outcome": "stopped-early", "message": stopped_early_message(waited.trainjob, reason)}
                if progress is not None:
                    waited.phase, waited.start = progress.phase, log.start
                if late := waited.expired_deadline():
                    return {"outcome": "deadline", "message": str(late), "what": late.what, "observed": log.observed}
                # The time limit of the task, which has begun before the deferral.
                if self.until is not None and time.time() >= self.until:
                    message = f"TrainJob {self.namespace}/{self.name} took too long"
                    return {"outcome": "deadline", "message": message, "observed": log.observed}
                if progress is not None:
                    await lease.keep(follower.cluster, waited.trainjob)
                interval = min(self._check_interval(waited.seconds_left()), log.next_poll(), lease.seconds_left())
                change = await seen.take(interval)
                if change is not None:  # the job is looked at before the cluster is checked
                    waited.observe_status(*change)
                    continue
                check_reachable(follower.reflector, waited.trainjob)
                if follower.is_absent():
                    raise waited.deleted_error()
        except TrainJobDeleted as gone:
            return {"outcome": "deleted", "message": str(gone)}
        except TooManyRestarts as failing:
            return {"outcome": "failing", "message": str(failing), "observed": log.observed, "seconds": log.seconds}
        except (CannotStart, NodeLost) as stuck:
            return {"outcome": "stuck", "message": str(stuck), "what": type(stuck).__name__}
        finally:
            log.close()

    def _check_interval(self, left: float) -> float:
        until = self.until - time.time() if self.until is not None else left
        return max(0.01, min(_CHECK_SECONDS * random.uniform(0.5, 1.0), left, until))


class _LatestValue:
    """The last change that was not yet taken: put from the watch thread, taken on the event loop."""

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
        """The change, as soon as there is one; None if there was none within `seconds`."""
        if self._change is None:
            self._taker = self._loop.create_future()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._taker
        change, self._change = self._change, None
        return change


class TriggerLease:
    """The lease of one trigger, on the triggerer's event loop; `seconds` is its length, 0 for none.

    It is renewed for the first time within `retry_seconds`, and again after so long if that failed.
    """

    __slots__ = ("_due", "_failure", "_interval", "_retry_seconds", "_seconds", "_trigger")

    def __init__(self, trigger: Any, seconds: int, retry_seconds: float):
        self._trigger, self._seconds, self._retry_seconds = trigger, lease_seconds(seconds), retry_seconds
        self._interval = self._seconds / RENEWALS
        self._failure = ""
        # A triggerer that starts takes many triggers at once; the task's own lease, if it had one, has run for a moment only.
        self._due = time.monotonic() + random.uniform(0, min(self._interval, retry_seconds))

    def seconds_left(self) -> float:
        """Seconds until the next renewal; infinite without a lease."""
        return max(0.01, self._due - time.monotonic()) if self._seconds else float("inf")

    async def keep(self, cluster: Cluster, trainjob: dict[str, Any]) -> None:
        """Renew the lease if it is time. A job that was suspended because no triggerer ran for longer goes on.

        A failure is logged if it is not that of the last time, and tried again soon.
        """
        # No lease, not due yet, or no longer needed.
        if not self._seconds or time.monotonic() < self._due or is_finished(trainjob):
            return
        pause = self._interval * random.uniform(0.8, 1.0)
        try:
            goes_on = await asyncio.get_running_loop().run_in_executor(
                _lease_threads, renew_lease, cluster, trainjob, self._seconds
            )
            self._failure = ""
            pause = pause if goes_on else min(pause, self._retry_seconds)
        except ApiError as error:  # there are several tries within the length of a lease
            if error.message != self._failure:
                self._failure = error.message
                self._trigger.log.warning(
                    "the lease on TrainJob %s was not renewed: %s", trainjob["metadata"]["name"], error.message
                )
            pause = min(pause, self._retry_seconds)
        self._due = time.monotonic() + pause
