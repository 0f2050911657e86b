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
from trainwright.api.kinds import JOBSET, TRAINJOB
from trainwright.api.objects import Obj, annotations_of, name_of, namespace_of, uid_of
from trainwright.cluster.patient import PatientCluster
from trainwright.cluster.protocol import Cluster
from trainwright.jobs.errors import Preempted
from trainwright.jobs.generations import preemptions_until
from trainwright.jobs.report import report_of
from trainwright.jobs.verdict import error_class

BUDGET = 3
"""Times that a step goes on by itself; whoever wants another number says so."""
FIRST_SECONDS, MOST_SECONDS = 10.0, 60.0
"""What took the pods away needs a moment to find room for others: doubled each time, a little of it random."""
_MARK = {names.PREEMPTED_ANNOTATION: "true"}
_MOST_TRIES = 10
log = logging.getLogger(__name__)


def wait_to_resume(cluster: Cluster, error: Preempted, budget: int, stop: threading.Event) -> bool:
    """Count the preemption of a job that has failed of it, and wait before its step is submitted again.

    False when `stop` ended the wait. Raises Preempted where the budget is used up, or where it cannot be counted.
    """
    trainjob = error.trainjob
    try:
        used = preemptions_until(_marked(PatientCluster(cluster, stop=stop), trainjob))
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


def judged(cluster: Cluster, trainjob: Obj) -> Obj:
    """The job, marked if it has failed by preemption and nobody has marked it; marked only here where it may not be changed."""
    if not is_true(trainjob, "Failed") or was_preempted(trainjob):
        return trainjob
    if not issubclass(error_class(report_of(cluster, trainjob)), Preempted):
        return trainjob
    try:
        return _marked(cluster, trainjob)
    except ApiError as error:
        log.warning("preemption of trainjob name=%s not marked: %s", name_of(trainjob), error.message)
        return _with_mark(trainjob)


def was_preempted(trainjob: Obj) -> bool:
    """Whether somebody has marked it so."""
    return names.PREEMPTED_ANNOTATION in annotations_of(trainjob)


def jobs_continued(cluster: Cluster, preempted: Obj) -> str:
    """UIDs of the JobSets of a preempted job and of those that it followed itself, with commas: what its successor goes on from.

    Without the one that cannot be read, with a warning: what that one has trained is then moved aside.
    """
    earlier = annotations_of(preempted).get(names.CONTINUES_ANNOTATION, "")
    try:
        own = uid_of(cluster.get(JOBSET, name_of(preempted), namespace_of(preempted)))
    except ApiError as error:
        log.warning("preempted trainjob name=%s is not gone on from: its JobSet: %s", name_of(preempted), error.message)
        return earlier
    return ",".join(filter(None, (own, earlier)))


def _marked(cluster: Cluster, trainjob: Obj) -> Obj:
    """That very job with the mark, once; as it would be when it is gone. Raises ApiError."""
    for _ in range(_MOST_TRIES):
        try:
            current = cluster.get(TRAINJOB, name_of(trainjob), namespace_of(trainjob))
            if uid_of(current) != uid_of(trainjob):
                return _with_mark(trainjob)
            metadata = {"resourceVersion": current["metadata"]["resourceVersion"], "annotations": _MARK}
            return cluster.patch(TRAINJOB, name_of(trainjob), {"metadata": metadata}, namespace_of(trainjob))
        except NotFound:
            return _with_mark(trainjob)
        except Conflict:  # its status moved on meanwhile
            continue
    raise Conflict(f"TrainJob {name_of(trainjob)} changed {_MOST_TRIES} times while its preemption was being counted")


def _with_mark(trainjob: Obj) -> Obj:
    return {**trainjob, "metadata": {**trainjob["metadata"], "annotations": {**annotations_of(trainjob), **_MARK}}}


def _given_up(error: Preempted, words: str) -> Preempted:
    return Preempted(f"{error}\n{words}" if words else str(error), error.trainjob, error.report)
