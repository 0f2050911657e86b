"""The history of a training from the log of its first rank, for clusters whose workspaces this machine does not read.

A log is parsed once: the result is kept for as long as the log is open, and new lines are added.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from trainwright.api import names
from trainwright.api.kinds import TRAINJOB
from trainwright.jobs.logs.log_metrics import parse_progress
from trainwright.jobs.wait.job_events import Metrics
from trainwright.jobs.wait.metric_changes import MetricChanges
from trainwright.ui.call import Call, Json
from trainwright.ui.logs.log_containers import LogContainer, log_containers
from trainwright.ui.logs.spool import LogKey, LogSpool
from trainwright.ui.logs.spools import LogSpools
from trainwright.ui.models.series import series_of

_LINES, _SECONDS = 2000, 1.0
"""Lines that are read at once, and the time for one answer: the next one continues."""
_FIRST_SECONDS = 1.0
"""How long the first answer waits for the log."""
_MAX_LINE, _MAX_ENTRIES, _MAX_KNOWN = 16 * 1024, 50_000, 64
_LAUNCHER = "launcher"


@dataclass
class _Parsed:
    """What was understood of a log so far: `at` is the next line."""

    spool: LogSpool
    at: int = 0
    values: dict[str, str] = field(default_factory=dict)
    changes: MetricChanges = field(default_factory=MetricChanges)
    entries: list[dict[str, Any]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


class LogHistories:
    """The histories of one server. Thread-safe."""

    def __init__(self, spools: LogSpools, *, clock: Callable[[], float] = time.monotonic):
        self._spools, self._clock = spools, clock
        self._known: dict[LogKey, _Parsed] = {}
        self._lock = threading.Lock()

    def read(self, call: Call, name: str) -> Json:
        """Return the series in the log of a TrainJob, in the form of `read_history`; empty if no rank has printed metrics.

        Raises NotFound, ApiError, TooManyRequests.
        """
        cluster = call.session.cluster
        trainjob = cluster.get(TRAINJOB, name, call.namespace)
        for container in _first_ranks(log_containers(cluster, trainjob)):
            parsed = self._parsed(call, container)
            with parsed.lock:
                is_whole = self._read_on(parsed)
                series = series_of(parsed.entries, "step")
                axis = "report" if parsed.changes.is_counted else "step"
            if series:
                notes = [] if is_whole else ["the log is still being read"]
                return {"series": series, "axis": axis, "source": f"the log of {container['pod']}", "notes": notes, "folder": ""}
        return {"series": {}, "axis": "step", "source": "", "notes": ["the log has no metrics"], "folder": ""}

    def _parsed(self, call: Call, container: LogContainer) -> _Parsed:
        key = LogKey(
            call.session.key, call.namespace, container["pod"], container["uid"], container["container"], container["restarts"]
        )
        spool = self._spools.open(call.session.cluster, key)
        with self._lock:
            known = self._known.pop(key, None)
            if known is None or known.spool is not spool:  # closed meanwhile, and read again
                known = _Parsed(spool)
            while len(self._known) >= _MAX_KNOWN:
                del self._known[next(iter(self._known))]
            self._known[key] = known
        self._wait_for_lines(spool)
        return known

    def _wait_for_lines(self, spool: LogSpool) -> None:
        """Wait a moment for the first lines: without them, another rank would seem to be the first that prints metrics."""
        until = self._clock() + _FIRST_SECONDS
        while not (spool.total or spool.state.is_final or spool.is_closed) and (left := until - self._clock()) > 0:
            spool.wait(spool.version, left)

    def _read_on(self, parsed: _Parsed) -> bool:
        """Parse what has come since, for a while; returns whether that was all."""
        until = self._clock() + _SECONDS
        while parsed.at < parsed.spool.total:
            if self._clock() > until:
                return False
            texts = parsed.spool.window(parsed.at, _LINES).texts
            if not texts:  # closed meanwhile
                return False
            parsed.at += len(texts)
            for text in texts:
                _parse(parsed, text[:_MAX_LINE].decode("utf-8", "replace"))
        return True


def _parse(parsed: _Parsed, line: str) -> None:
    found = parse_progress(line)
    if found is None or not found.metrics:
        return
    metrics = dict(found.metrics)
    parsed.values.update(metrics)
    for step, numbers in parsed.changes.of((Metrics(tuple(parsed.values.items()), tuple(metrics)),)):
        parsed.entries.append({**numbers, "step": step})
    if len(parsed.entries) > _MAX_ENTRIES:
        del parsed.entries[1:-1:2]


def _first_ranks(containers: list[LogContainer]) -> list[LogContainer]:
    """Return the containers that may print metrics, the likeliest first: a launcher, then the newest pod of the first rank."""
    ranks = [
        each
        for each in containers
        if each["main"] and each["rank"] == each["job"] == 0 and each["step"] not in names.INITIALIZERS
    ]
    newest = sorted(ranks, key=lambda each: each["created"], reverse=True)
    return sorted(newest, key=lambda each: each["step"] != _LAUNCHER)
