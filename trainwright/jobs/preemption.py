"""A job whose pods were taken away goes on as its next generation, within a budget apart from anybody's retries.

What is used of the budget is kept on the TrainJobs: an ended one carries a mark, and each new one how many there were before it.
So neither a crash of whoever counts nor the deletion of earlier generations resets it, and nothing is counted twice.
"""

from __future__ import annotations

import logging
import random
import threading

from trainwright.api import names
from trainwright.api.conditions import is_true
from trainwright.api.errors import ApiError, Conflict, NotFound
from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import Obj, annotations_of, name_of, namespace_of, uid_of
from trainwright.cluster.protocol import Cluster
from trainwright.jobs.errors import Preempted
from trainwright.jobs.generations import preemptions_until
from trainwright.jobs.report import report_of
from trainwright.jobs.verdict import error_class

BUDGET = 3
"""Times that a step goes on by itself; whoever wants another number says so."""
FIRST_SECONDS, MOST_SECONDS = 10.0, 60.0
"""What took the pods away needs a moment to find room for others: doubled each time, a little of it random."""
_MOST_TRIES = 10
log = logging.getLogger(__name__)


def wait_to_resume(cluster: Cluster, error: Preempted, budget: int, stop: threading.Event) -> bool:
    """Count the preemption of a job that has failed of it, and wait before its step is submitted again.

    False when `stop` ended the wait. Raises Preempted where the budget is used up, or where it cannot be counted.
    """
    trainjob = error.trainjob
    try:
        used = counted(cluster, trainjob, preempted=True)
    except ApiError as refused:
        raise _given_up(error, f"it is not resumed, since the preemption cannot be counted: {refused.message}") from error
    if used > budget:
        words = f"its budget of {budget} resumptions after preemptions is used up" if budget else ""
        raise _given_up(error, words) from None
    seconds = min(MOST_SECONDS, FIRST_SECONDS * 2 ** (used - 1)) * random.uniform(0.8, 1.0)
    log.warning(
        "trainjob preempted name=%s resumption=%d budget=%d; its step goes on in %.0f s", name_of(trainjob), used, budget, seconds
    )
    return not stop.wait(seconds)


def counted(cluster: Cluster, trainjob: Obj, *, preempted: bool | None = None) -> int:
    """How many generations up to this one ended by preemption; this one is marked if it did and nobody has marked it.

    `preempted` says so where it is known; else a failed one is looked at. Raises ApiError.
    """
    if not is_true(trainjob, "Failed") or names.PREEMPTED_ANNOTATION in annotations_of(trainjob):
        return preemptions_until(trainjob)
    if preempted is None:
        preempted = issubclass(error_class(report_of(cluster, trainjob)), Preempted)
    if not preempted:
        return preemptions_until(trainjob)
    marked = _marked(cluster, trainjob)
    return preemptions_until(marked) if marked is not None else preemptions_until(trainjob) + 1


def _marked(cluster: Cluster, trainjob: Obj) -> Obj | None:
    """That very job with the mark; None when it is gone."""
    for _ in range(_MOST_TRIES):
        try:
            current = cluster.get(TRAINJOB, name_of(trainjob), namespace_of(trainjob))
            if uid_of(current) != uid_of(trainjob):
                return None
            metadata = {
                "resourceVersion": current["metadata"]["resourceVersion"],
                "annotations": {names.PREEMPTED_ANNOTATION: "true"},
            }
            return cluster.patch(TRAINJOB, name_of(trainjob), {"metadata": metadata}, namespace_of(trainjob))
        except NotFound:
            return None
        except Conflict:  # its status moved on meanwhile
            continue
    raise Conflict(f"TrainJob {name_of(trainjob)} changed {_MOST_TRIES} times while its preemption was being counted")


def _given_up(error: Preempted, words: str) -> Preempted:
    return Preempted(f"{error}\n{words}" if words else str(error), error.trainjob, error.report)
