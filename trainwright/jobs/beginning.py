"""Where the submission of a step begins: in which mode it has a job already, and with which generation.

What auto chooses may have changed since the job was made: Trainer was installed, or its controller has gone.
"""

from __future__ import annotations

import logging
import threading
from typing import NamedTuple

from trainwright.api.errors import Forbidden, NotFound
from trainwright.api.objects import Obj, name_of
from trainwright.cluster.patient import PatientCluster
from trainwright.cluster.protocol import Cluster
from trainwright.cluster.submission_mode import JobsCluster, choice_of, other_mode
from trainwright.jobs.generations import generation_of, generations_of, is_over
from trainwright.jobs.identity import Identity
from trainwright.jobs.preemption import judged

log = logging.getLogger(__name__)


class Beginning(NamedTuple):
    """The cluster in the mode that counts, the first generation to look at, and the one before it where that was of the other mode."""

    cluster: Cluster
    generation: int = 1
    before: Obj | None = None


def beginning_of(cluster: Cluster, identity: Identity, namespace: str, stop: threading.Event | None) -> Beginning:
    """From the newest generation that exists, in this mode or the other: somebody may have deleted earlier ones."""
    ours = _newest(PatientCluster(cluster, stop=stop), identity, namespace)
    if ours is not None:
        return Beginning(cluster, generation_of(ours))
    if not isinstance(cluster, JobsCluster) or not choice_of(cluster).could_differ:
        return Beginning(cluster)
    other = other_mode(cluster)
    patient = PatientCluster(other, stop=stop)
    try:
        theirs = _newest(patient, identity, namespace)
    except (Forbidden, NotFound) as error:
        log.debug("not looked for jobs of the other mode error=%s", error.message)
        return Beginning(cluster)
    if theirs is None:
        return Beginning(cluster)
    if is_over(theirs):
        return Beginning(cluster, generation_of(theirs) + 1, judged(patient, theirs))
    mode = choice_of(other).mode
    log.warning("the job of this step was made in the mode %s and is followed there name=%s", mode, name_of(theirs))
    return Beginning(other, generation_of(theirs))


def _newest(cluster: Cluster, identity: Identity, namespace: str) -> Obj | None:
    return max(generations_of(cluster, identity, namespace), key=generation_of, default=None)
