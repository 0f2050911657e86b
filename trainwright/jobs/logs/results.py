"""Reads the result of a training program from the log of its first node."""

from __future__ import annotations

import logging
from typing import Any

from trainwright.api.errors import ApiError
from trainwright.api.objects import Obj, name_of
from trainwright.cluster.protocol import Cluster
from trainwright.cluster.retrying import RetryingCluster
from trainwright.jobs.logs.follow_logs import read_logs
from trainwright.jobs.logs.log_options import LogSelector
from trainwright.jobs.logs.result_lines import parse_results

_TAIL_LINES = 400
"""Results are the last lines of the launcher: 256 KiB in lines of 2 KiB, plus room for interleaved lines of other processes."""
log = logging.getLogger(__name__)


def results_of(cluster: Cluster, trainjob: Obj) -> Any:
    """Return the value of `results.json`, or of the training function; None if there is none or the log cannot be read.

    Raises UnreportableResult if a function returned what cannot be reported.
    """
    try:
        return parse_results(
            line.text for line in read_logs(RetryingCluster(cluster), trainjob, LogSelector(rank=0, tail=_TAIL_LINES))
        )
    except ApiError as error:
        log.warning("event=results_not_read name=%s error=%s", name_of(trainjob), error.message)
        return None
