"""The TrainJobs that one step of a run has had, one after the other: which they are, which is over, which may go."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from trainwright.api import names
from trainwright.api.conditions import is_finished, is_true
from trainwright.api.errors import ApiError, Conflict, NotFound
from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import Obj, annotations_of, is_deleting, name_of, namespace_of, uid_of
from trainwright.cluster.protocol import Cluster
from trainwright.jobs.identity import Identity
from trainwright.jobs.label_values import label_value

log = logging.getLogger(__name__)


def generations_of(cluster: Cluster, identity: Identity, namespace: str) -> list[Obj]:
    """All that exist, in no order."""
    selector = f"{names.RUN_LABEL}={label_value(identity.run)},{names.STEP_LABEL}={label_value(identity.step)}"
    jobs = cluster.list(TRAINJOB, namespace, label_selector=selector).items
    return [job for job in jobs if annotations_of(job).get(names.OWNER_ANNOTATION) == str(identity)]


def generation_of(trainjob: Obj) -> int:
    """Its number, counted from 1."""
    return _number(trainjob, names.GENERATION_ANNOTATION, 1)


def preemptions_until(trainjob: Obj) -> int:
    """How many generations of the step ended by preemption, up to this one and with it."""
    return preemptions_before(trainjob) + int(names.PREEMPTED_ANNOTATION in annotations_of(trainjob))


def preemptions_before(trainjob: Obj) -> int:
    """How many of those before it did."""
    return _number(trainjob, names.PREEMPTIONS_ANNOTATION, 0)


def is_over(trainjob: Obj) -> bool:
    """Nothing that can be waited for or resumed comes of it."""
    return is_true(trainjob, "Failed") or is_deleting(trainjob) or names.SUPERSEDED_ANNOTATION in annotations_of(trainjob)


def retire_earlier(cluster: Cluster, current: Obj, identities: Iterable[Identity]) -> None:
    """Delete the jobs of these steps that ended before the current one, which is of one of them.

    What may not be deleted stays, with a warning. Raises ApiError where they cannot be listed.
    """
    number = generation_of(current)
    for identity in identities:
        ended = [job for job in generations_of(cluster, identity, namespace_of(current)) if is_finished(job)]
        own = annotations_of(current).get(names.OWNER_ANNOTATION) == str(identity)
        _delete(cluster, [job for job in ended if not own or generation_of(job) < number])


def _delete(cluster: Cluster, jobs: list[Obj]) -> None:
    for job in jobs:
        if is_deleting(job):
            continue
        try:
            cluster.delete(TRAINJOB, name_of(job), namespace_of(job), propagation="Foreground", uid=uid_of(job))
        except (NotFound, Conflict):  # gone, or another job has its name
            continue
        except ApiError as error:
            log.warning("earlier generation kept name=%s error=%s", name_of(job), error.message)
        else:
            log.info("earlier generation deleted name=%s", name_of(job))


def _number(trainjob: Obj, annotation: str, default: int) -> int:
    text = annotations_of(trainjob).get(annotation, "")
    return int(text) if text.isdecimal() else default
