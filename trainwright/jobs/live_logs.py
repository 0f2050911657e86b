"""The log of a job read beside the wait for it: found when its pods change, shown in as many bytes as are wanted, to the end.

It costs a list of the job's pods when something changes or nothing is being read, and one connection for each log.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

from trainwright.api.errors import ApiError, Forbidden
from trainwright.api.objects import Obj
from trainwright.cluster.protocol import Cluster
from trainwright.jobs import log_reader, logs
from trainwright.jobs.log_line import LogLine
from trainwright.jobs.logs import Budget, Following, Wanted, last_lines
from trainwright.jobs.pods import pods_of

LOG_LOOK_SECONDS = 0.5
"""The tick of a log that is shown live."""
TICK_BYTES = 64 * 1024
TOTAL_BYTES = 16 * 1024 * 1024
_LOOK_FOR_PODS, _LOOK_FOR_MORE = 5.0, 30.0
"""Seconds between two lists of the pods while nothing is read, and while something is."""


@dataclass(frozen=True)
class Live:
    """Which log is shown, and how much of it."""

    wanted: Wanted = Wanted()  # noqa: RUF009  (frozen)
    budget: Budget = Budget(TICK_BYTES, TOTAL_BYTES)  # noqa: RUF009

    @classmethod
    def parse(cls, text: str, total: int = TOTAL_BYTES) -> Live | None:
        """From `RANK`, `all`, `STEP:RANK`, `STEP:all`; None for `none`, or a total of 0 bytes. Raises ValueError."""
        wanted = Wanted.parse(text)
        return cls(wanted, Budget(TICK_BYTES, total)) if wanted is not None and total > 0 else None


class LiveLogs:
    """A context manager; without `live` it shows nothing and costs nothing."""

    def __init__(self, cluster: Cluster, trainjob: Obj, live: Live | None):
        self.wanted = live.wanted if live else None
        self._cluster, self._trainjob = cluster, trainjob
        self._following = Following(cluster, live.wanted, live.budget) if live else None
        self._changed = threading.Event()
        self._steps: object = None
        self._refusal, self._told = "", False

    def __enter__(self) -> LiveLogs:
        if self._following is not None:
            threading.Thread(target=self._find_for_ever, args=(self._following,), name="live-logs", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._following is not None:
            self._following.closed.set()
            self._changed.set()

    @property
    def restarts(self) -> int:
        """Of containers, as far as their logs were read: too quick ones change no step."""
        return self._following.restarts if self._following is not None else 0

    def saw(self, trainjob: Obj) -> None:
        """The job as it is now: when its steps have changed, so may have its pods."""
        steps = (trainjob.get("status") or {}).get("jobsStatus")
        if steps != self._steps:
            self._steps = steps
            self._changed.set()

    def lines(self) -> Iterator[LogLine]:
        """What has been printed since the last call, in the bytes of one tick."""
        if self._following is not None:
            yield from self._following.waiting()
            if self._refusal and not self._told:
                self._told = True
                yield LogLine("", f"(its log is not shown: {self._refusal})")

    def rest(self) -> Iterator[LogLine]:
        """What is still to come of a job that has ended."""
        following = self._following
        if following is None or self.wanted is None:
            return
        self._find(following)
        yield from self.lines()
        until = time.monotonic() + logs.GRACE_SECONDS
        done = False
        while not (done or following.used_up):
            done = not following.is_reading or time.monotonic() > until
            yield from following.arriving(0 if done else log_reader.LOOK_SECONDS)
        if following.used_up:
            yield from last_lines(self._cluster, self._trainjob, self.wanted)

    def _find_for_ever(self, following: Following) -> None:
        while not following.closed.is_set() and not self._refusal:
            self._changed.clear()
            self._find(following)
            self._changed.wait(_LOOK_FOR_MORE if following.is_reading else _LOOK_FOR_PODS)

    def _find(self, following: Following) -> None:
        assert self.wanted is not None
        try:
            following.begin(pods_of(self._cluster, self._trainjob, self.wanted.step))
        except Forbidden as error:
            self._refusal = error.message
        except ApiError:  # asked again at the next look
            return
