"""What a deferred task's log shows of its job while it waits in the triggerer: what happens to it, and what it prints.

Airflow merges what a trigger logs into the task's log. Nobody holds a connection for it: logs are looked at now and then, in
threads of their own, and the less often the more tasks wait.
"""

from __future__ import annotations

import asyncio
import random
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

MOST_LOOKS_A_SECOND = 2.0
"""Of all triggers of a process together: with more of them the time between two looks grows."""
_SOON = 0.02
_threads = ThreadPoolExecutor(4, thread_name_prefix="trigger-log")
_open = 0


class TriggerLog:
    """Of one trigger, on the triggerer's event loop."""

    __slots__ = ("_due", "_follower", "_live", "_polled", "_seen", "_story", "_tell", "_trigger")

    def __init__(self, trigger: Any, follower: Any):
        from trainwright.jobs import Live, Teller
        from trainwright.jobs.happenings import Story

        global _open
        self._trigger, self._follower = trigger, follower
        self._live = Live.parse(trigger.logs, trigger.log_bytes) if trigger.log_interval > 0 else None
        self._story, self._tell = Story(), Teller(lambda line: trigger.log.info("%s", line))
        self._polled: Any = None
        self._due: float | None = None
        self._seen: Any = None
        _open += self._live is not None

    def close(self) -> None:
        global _open
        _open -= self._live is not None

    async def saw(self, trainjob: dict[str, Any]) -> Any:
        """Tell what has happened; returns where the job stands, None while nobody has seen it."""
        from trainwright.jobs.restarts import begun_anew

        if "resourceVersion" not in trainjob["metadata"]:
            return None
        if trainjob is self._seen and self.next_look() > _SOON:
            return self._story.progress
        self._seen = trainjob
        self._tell(self._story.saw(trainjob))
        self._story.heard(self._polled.restarts if self._polled is not None else 0)
        if self._story.wonders:
            begun = await asyncio.to_thread(begun_anew, self._follower.cluster, trainjob)
            self._tell(self._story.counted(begun))
        progress: Any = self._story.progress
        if self._live is not None:
            await self._print(trainjob, progress.phase)
        return self._story.progress

    def next_look(self) -> float:
        """Seconds until the log is looked at; endless while there is none."""
        return max(0.01, self._due - time.monotonic()) if self._due is not None else float("inf")

    async def _print(self, trainjob: dict[str, Any], phase: Any) -> None:
        """A job that nobody has seen starting is another triggerer's until now, or a retry's: that has shown what came before."""
        from trainwright.jobs import Phase
        from trainwright.jobs.polled_logs import PolledLogs

        if self._polled is None and (phase is Phase.Running or phase.is_final):
            since = "" if self._due is not None else _ago(self._trigger.log_interval)
            self._polled = PolledLogs(self._follower.cluster, trainjob, self._live, since)
        if self._due is None:
            self._due = time.monotonic() + self._interval()
        if not (phase.is_final or time.monotonic() >= self._due):
            return
        if self._polled is not None:
            look = self._polled.rest if phase.is_final else self._polled.look
            for line in await asyncio.get_running_loop().run_in_executor(_threads, look):
                self._tell(self._story.read(line))
        self._due = time.monotonic() + self._interval()

    def _interval(self) -> float:
        return max(float(self._trigger.log_interval), _open / MOST_LOOKS_A_SECOND) * random.uniform(0.8, 1.0)


def _ago(seconds: float) -> str:
    return datetime.fromtimestamp(time.time() - seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
