"""What a training program returned, read from the log of its first node."""

from __future__ import annotations

import logging
from typing import Any

from trainwright.api.errors import ApiError
from trainwright.api.objects import Obj, name_of
from trainwright.cluster.protocol import Cluster
from trainwright.jobs.logs import Wanted, read_logs
from trainwright.jobs.result_lines import parse_results

_TAIL_LINES = 400
"""They are the last that the launcher prints: 256 KiB in lines of 2 KiB, and room for what other processes print beside them."""
log = logging.getLogger(__name__)


def results_of(cluster: Cluster, trainjob: Obj) -> Any:
    """The value of `results.json`, or what the training function returned; None where there is none, or its log cannot be read."""
    try:
        return parse_results(line.text for line in read_logs(cluster, trainjob, Wanted(rank=0, tail=_TAIL_LINES)))
    except ApiError as error:
        log.warning("results are not read name=%s error=%s", name_of(trainjob), error.message)
        return None
