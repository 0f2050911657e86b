"""Keeps the lease of a deferred task on its TrainJob: if no triggerer runs any more, somebody else may stop the job after a while.

A user may end a deferred task while no triggerer runs, and then nothing tells the job.
"""

from __future__ import annotations

import asyncio
import random
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from trainwright.api.conditions import is_finished
from trainwright.api.errors import ApiError
from trainwright.cluster.protocol import Cluster
from trainwright.jobs.state.waiters import RENEWALS, lease_seconds
from trainwright.jobs.wait.keep_lease import renew_lease

_pool = ThreadPoolExecutor(4, thread_name_prefix="trigger-lease")


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
        if not self._seconds or time.monotonic() < self._due or is_finished(trainjob):
            return
        pause = self._interval * random.uniform(0.8, 1.0)
        try:
            goes_on = await asyncio.get_running_loop().run_in_executor(_pool, renew_lease, cluster, trainjob, self._seconds)
            self._failure = ""
            pause = pause if goes_on else min(pause, self._retry_seconds)
        except ApiError as error:
            if error.message != self._failure:
                self._failure = error.message
                self._trigger.log.warning(
                    "the lease on TrainJob %s was not renewed: %s", trainjob["metadata"]["name"], error.message
                )
            pause = min(pause, self._retry_seconds)
        self._due = time.monotonic() + pause
