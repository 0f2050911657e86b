"""The history of a training from the log of its first rank, for clusters whose workspaces this machine does not read.

A log is parsed once: its metrics are kept, and new lines are added.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from trainwright.api import names
from trainwright.api.errors import ApiError
from trainwright.api.kinds import POD, TRAINJOB
from trainwright.checkpoints.training_history import STEP
from trainwright.evaluation.loss_curve import MetricHistory
from trainwright.jobs.logs.container_log import ContainerLog
from trainwright.jobs.logs.log_metrics import parse_progress
from trainwright.jobs.wait.job_events import Metrics
from trainwright.ui.call import Call, Json
from trainwright.ui.logs.log_lines import CATCH_UP_LINES, LogContainer, log_containers, shown
from trainwright.ui.models.history import series_of

_SECONDS = 1.0
"""The time for one answer: the next one continues."""
_MAX_LINE, _MAX_KNOWN = 16 * 1024, 64
_LAUNCHER = "launcher"


_Key = tuple[str, str, str, str, int]


@dataclass
class _Parsed:
    """What was understood of a log so far."""

    log: ContainerLog
    values: dict[str, str] = field(default_factory=dict)
    history: MetricHistory = field(default_factory=MetricHistory)
    lock: threading.Lock = field(default_factory=threading.Lock)


class LogHistories:
    """The histories of one server. Thread-safe."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._known: dict[_Key, _Parsed] = {}
        self._lock = threading.Lock()

    def read(self, call: Call, name: str) -> Json:
        """Return the series in the log of a TrainJob, in the form of `read_history`; empty if no rank has printed metrics.

        Raises NotFound, ApiError.
        """
        cluster = call.session.cluster
        trainjob = cluster.get(TRAINJOB, name, call.namespace)
        for container in _first_ranks(log_containers(cluster, trainjob)):
            parsed = self._parsed(call, container)
            with parsed.lock:
                is_whole = self._read_on(parsed)
                series, axis = series_of(parsed.history.entries, STEP), parsed.history.count
            if series:
                notes = [] if is_whole else ["the log is still being read"]
                return {"series": series, "axis": axis, "source": f"the log of {container['pod']}", "notes": notes, "folder": ""}
        return {"series": {}, "axis": "step", "source": "", "notes": ["the log has no metrics"], "folder": ""}

    def _parsed(self, call: Call, container: LogContainer) -> _Parsed:
        key = (call.session.key, call.namespace, container["uid"], container["container"], container["restarts"])
        pod = call.session.cluster.get(POD, container["pod"], call.namespace)
        with self._lock:
            known = self._known.pop(key, None) or _Parsed(ContainerLog(call.session.cluster, pod, container["container"]))
            while len(self._known) >= _MAX_KNOWN:
                del self._known[next(iter(self._known))]
            self._known[key] = known
        known.log.pod = pod
        return known

    def _read_on(self, parsed: _Parsed) -> bool:
        """Parse what has come since, for a while; returns whether that was all."""
        until, log = self._clock() + _SECONDS, parsed.log
        try:
            for _, text in log.poll(log.pod):
                _parse(parsed, shown(text)[:_MAX_LINE])
                if self._clock() > until:  # a long log is read in parts: the page shows what there is
                    log.catch_up = None
                    return False
        except ApiError:  # not started, not kept, or not for this user: then there are no metrics, or no more
            return True
        log.catch_up = CATCH_UP_LINES
        return True


def _parse(parsed: _Parsed, line: str) -> None:
    found = parse_progress(line)
    if found is None or not found.metrics:
        return
    metrics = dict(found.metrics)
    parsed.values.update(metrics)
    parsed.history((Metrics(tuple(parsed.values.items()), tuple(metrics)),))


def _first_ranks(containers: list[LogContainer]) -> list[LogContainer]:
    """Return the containers that may print metrics, the likeliest first: a launcher, then the newest pod of the first rank."""
    ranks = [
        each
        for each in containers
        if each["main"] and each["rank"] == each["job"] == 0 and each["step"] not in names.INITIALIZERS
    ]
    newest = sorted(ranks, key=lambda each: each["created"], reverse=True)
    return sorted(newest, key=lambda each: each["step"] != _LAUNCHER)
