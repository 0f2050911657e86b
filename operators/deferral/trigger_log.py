"""Shows the events and the log of a job in the log of its deferred task.

Airflow merges the log of a trigger into the task's log. Pods come by one watch for all tasks of a connection and namespace. Logs of
jobs are read in a thread pool, less often the more tasks wait, and so is what tells why a job does not run.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from trainwright.api.errors import ApiError
from trainwright.api.kinds import TRAINJOB
from trainwright.api.phase import Phase
from trainwright.cluster.reflector import Subscription
from trainwright.jobs import LogStreamOptions
from trainwright.jobs.diagnosis.report import read_usage
from trainwright.jobs.logs.log_excerpt import narrow_tail
from trainwright.jobs.logs.log_options import LogLine
from trainwright.jobs.logs.poll_logs import PolledLogs, shown_patch, shown_until
from trainwright.jobs.state.progress import Divergence, Progress
from trainwright.jobs.state.usage import NO_USAGE
from trainwright.jobs.state.watched_pods import PodsOfJob, WatchedPods
from trainwright.jobs.wait.job_events import EventTracker, Used
from trainwright.jobs.wait.job_observer import JobObserver, WaitSettings, interval_for
from trainwright.operators.reporting.task_events import TaskEventPrinter

MAX_POLLS_PER_SECOND = 2.0
"""Of job logs, and of reasons why jobs do not run, shared by all triggers of a process: with more of them the intervals grow."""
_SOON = 0.02
log = logging.getLogger(__name__)
_pool = ThreadPoolExecutor(4, thread_name_prefix="trigger-log")
_open_logs = 0
_open_triggers = 0
_watched = WatchedPods()


class TriggerLog:
    """The log output of one trigger, on the triggerer's event loop."""

    __slots__ = (
        "_cluster",
        "_due",
        "_follower",
        "_last_job",
        "_log_options",
        "_observer",
        "_poller",
        "_show",
        "_tracker",
        "_trigger",
    )

    def __init__(self, trigger: Any, follower: Subscription):
        global _open_logs, _open_triggers
        self._trigger, self._follower = trigger, follower
        self._cluster: PodsOfJob = _watched.open(follower.watch, follower.cluster, trigger.namespace, trigger.name)
        self._log_options = LogStreamOptions.parse(trigger.logs, trigger.log_bytes) if trigger.log_poll_interval > 0 else None
        self._tracker, self._show = EventTracker(), TaskEventPrinter(lambda line: trigger.log.info("%s", line))
        self._poller: PolledLogs | None = None
        self._due: float | None = None
        self._last_job: dict[str, Any] | None = None
        self._observer: JobObserver | None = None
        _open_logs += self._log_options is not None
        _open_triggers += 1

    def close(self) -> None:
        global _open_logs, _open_triggers
        self._cluster.close()
        _open_logs -= self._log_options is not None
        _open_triggers -= 1

    @property
    def observed(self) -> dict[str, Any]:
        """What was seen of failed pods, for the failure report in the worker: they may have been deleted since."""
        if self._observer is None:  # no pod was looked at yet
            return {}
        if self._poller is not None:
            self._observer.history.add_shown(self._poller.recent.lines())
        found: dict[str, Any] = self._observer.history.as_dict(max_pods=4, excerpt=narrow_tail)
        return found

    @property
    def start(self) -> Any:
        """Which pods have started, as far as the last look has shown; None if that is unknown."""
        return self._observer.start if self._observer is not None else None

    @property
    def divergence(self) -> Divergence | None:
        """How the running training has diverged, as far as its reports and its log show; None if it has not."""
        return self._tracker.divergence.running()

    @property
    def started_from(self) -> str:
        """What the training was last seen to start from, which its log says; empty if that was not seen."""
        text: str = self._show.started_from
        return text

    async def usage(self, trainjob: dict[str, Any]) -> dict[str, Any]:
        """What the job used that has ended, for the result in the worker; logged as well."""
        history = self._observer.history if self._observer is not None else None
        loop = asyncio.get_running_loop()
        used = await loop.run_in_executor(_pool, read_usage, self._cluster, trainjob, history)
        if used == NO_USAGE:  # nothing is known that the result could show
            return {}
        self._show((Used(used),))
        found: dict[str, Any] = used.as_dict()
        return found

    @property
    def seconds(self) -> dict[str, float]:
        """How long the job was queued, starting and running, as far as this trigger has seen it."""
        return {phase: round(seconds, 3) for phase, seconds in self._show.seconds.items()}

    async def observe(self, trainjob: dict[str, Any]) -> Progress | None:
        """Log the events of the job; returns its progress, None if the job has not been read yet. Raises the errors of
        `JobObserver.observe`."""
        if "resourceVersion" not in trainjob["metadata"]:  # only its identity is known so far
            return None
        is_due = self._observer is None or self._observer.is_due(trainjob)
        if trainjob is self._last_job and self._next_log_poll() > _SOON and not is_due:  # nothing has changed, and nothing is due
            return self._tracker.progress
        self._last_job = trainjob
        self._show(self._tracker.observe_status(trainjob))
        await self._observe_pods(trainjob)
        progress = self._tracker.progress
        if self._log_options is not None and progress is not None:
            await self._show_log(trainjob, progress.phase)
        return self._tracker.progress

    def next_poll(self) -> float:
        """Seconds until something is read; infinite before the job was read for the first time."""
        left = self._observer.seconds_left() if self._observer is not None else float("inf")
        return max(0.01, min(left, self._next_log_poll()))

    def _next_log_poll(self) -> float:
        return max(0.01, self._due - time.monotonic()) if self._due is not None else float("inf")

    async def _observe_pods(self, trainjob: dict[str, Any]) -> None:
        trigger = self._trigger
        if self._observer is None:
            settings = WaitSettings(
                trigger.fail_if_stuck, trigger.lost_node_timeout_seconds, _interval_for, restarts=trigger.restarts
            )
            self._observer = JobObserver(self._cluster, trainjob, settings)
        self._observer.observe_log(self._poller.restarts if self._poller is not None else 0)
        is_final = self._tracker.progress is not None and self._tracker.progress.phase.is_final
        read = self._observer.observe_end if is_final else self._observer.observe
        if not (is_final or self._observer.is_due(trainjob)):  # the more tasks wait, the rarer are looks that take requests
            return
        observation = await asyncio.get_running_loop().run_in_executor(_pool, read, trainjob)
        if observation is not None:
            self._show(self._tracker.observe_pods(observation))

    async def _show_log(self, trainjob: dict[str, Any], phase: Phase) -> None:
        """Poll the log, from where an earlier triggerer has ended, or from its beginning."""
        if self._poller is None and self._log_options is not None and (phase is Phase.Running or phase.is_final):
            self._poller = PolledLogs(self._cluster, trainjob, self._log_options, shown_until(trainjob))
        if self._due is None:
            self._due = time.monotonic() + self._interval()
        if not (phase.is_final or time.monotonic() >= self._due):  # the log of a job that has ended is read at once, to its end
            return
        if self._poller is not None:
            if phase.is_final:
                portions = self._poller.drain()
                while (portion := await asyncio.get_running_loop().run_in_executor(_pool, next, portions, None)) is not None:
                    self._show_lines(portion)
            elif lines := await asyncio.get_running_loop().run_in_executor(_pool, self._poller.poll):
                self._show_lines(lines)
                await asyncio.get_running_loop().run_in_executor(
                    _pool, self._note_shown, trainjob, dict(self._poller.shown_until)
                )
        self._due = time.monotonic() + self._interval()

    def _show_lines(self, lines: list[LogLine]) -> None:
        for line in lines:
            self._show(self._tracker.observe_line(line))

    def _note_shown(self, trainjob: dict[str, Any], shown: dict[str, str]) -> None:
        """Note on the job how far its log has been shown. Without that, the next triggerer shows some lines again."""
        try:
            self._follower.cluster.patch(TRAINJOB, self._trigger.name, shown_patch(trainjob, shown), self._trigger.namespace)
        except ApiError as error:  # the next triggerer shows some lines again
            log.debug("event=shown_log_not_noted name=%s error=%s", self._trigger.name, error.message)

    def _interval(self) -> float:
        return max(float(self._trigger.log_poll_interval), _open_logs / MAX_POLLS_PER_SECOND) * random.uniform(0.8, 1.0)


def _interval_for(phase: Phase) -> float:
    """Seconds between two looks. The pods of a running job cost nothing; why another does not run takes requests."""
    least = 0.0 if phase is Phase.Running else _open_triggers / MAX_POLLS_PER_SECOND
    return max(interval_for(phase), least) * random.uniform(0.8, 1.0)
