"""Reads what a training that has ended says about itself in its log: all that it has logged, and whether it has diverged."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from trainwright.api.errors import ApiError
from trainwright.api.objects import Obj, name_of
from trainwright.cluster.protocol import Cluster
from trainwright.cluster.retrying import RetryingCluster
from trainwright.jobs.logs.follow_logs import read_logs
from trainwright.jobs.logs.history_lines import parse_history
from trainwright.jobs.logs.log_metrics import parse_progress
from trainwright.jobs.logs.log_options import LogSelector
from trainwright.jobs.state.divergence import Divergence, DivergenceDetector, divergence_in

_TAIL_LINES = 2000
"""The history has a few hundred lines at most; what follows it are the results of a function, and what programs print at their end."""
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainingLog:
    """`entries` are the logged values, each with its `step`."""

    entries: tuple[Mapping[str, float], ...] = ()
    divergence: Divergence | None = None

    def divergence_with(self, reported: DivergenceDetector) -> Divergence | None:
        """Return the divergence of the training, of whose reports this detector has followed those that could be seen."""
        return self.divergence if self.divergence is not None or self.entries else reported.ended()


def read_training_log(cluster: Cluster, trainjob: Obj) -> TrainingLog:
    """Return what the log of rank 0 says; nothing if it cannot be read."""
    try:
        return training_log_in(
            line.text for line in read_logs(RetryingCluster(cluster), trainjob, LogSelector(rank=0, tail=_TAIL_LINES))
        )
    except ApiError as error:
        log.debug("event=training_log_not_read name=%s error=%s", name_of(trainjob), error.message)
        return TrainingLog()


def training_log_in(lines: Iterable[str]) -> TrainingLog:
    """Return what these lines say: those of a history, else the metrics that are printed line by line. Pure."""
    texts = list(lines)
    if entries := parse_history(texts):
        return TrainingLog(entries, divergence_in(entries))
    reports = [dict(parsed.metrics) for text in texts if (parsed := parse_progress(text)) is not None and parsed.metrics]
    printed = (_numbers(report) for report in reports if "step" in report)
    return TrainingLog(tuple(entry for entry in printed if "step" in entry), divergence_in(reports))


def _numbers(report: Mapping[str, str]) -> dict[str, float]:
    numbers = {}
    for name, text in report.items():
        try:
            numbers[name] = float(text)
        except ValueError:
            continue
    return numbers
