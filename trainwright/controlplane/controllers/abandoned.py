"""Suspends TrainJobs whose waiting client is gone longer than its lease."""

from __future__ import annotations

import logging
from datetime import datetime

from trainwright.api.errors import Forbidden
from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import Obj, name_of, namespace_of
from trainwright.api.waiter_lease import abandoned_patch, active_lease_of
from trainwright.cluster.protocol import Cluster
from trainwright.controlplane.controllers.events import record_event

log = logging.getLogger(__name__)


def suspend_if_abandoned(cluster: Cluster, trainjob: Obj, now: datetime) -> float | None:
    """Suspend the job if its lease has expired. Returns the seconds until it expires, None if there is nothing to wait for.

    Without permission to change jobs a warning is logged. Raises Conflict if the job has
    changed meanwhile, which may be a renewal, and ApiError.
    """
    lease = active_lease_of(trainjob)
    if lease is None:
        return None
    if (left := lease.seconds_left(now)) > 0:
        return left
    try:
        cluster.patch(TRAINJOB, name_of(trainjob), abandoned_patch(trainjob), namespace_of(trainjob))
    except Forbidden as error:
        log.warning("event=trainjob_not_suspended name=%s reason=abandoned error=%s", name_of(trainjob), error.message)
        return None
    message = (
        f"suspended: the client that waits for it has not renewed its lease of {lease.seconds} s; run its step again to resume"
    )
    log.warning("event=trainjob_abandoned namespace=%s name=%s", namespace_of(trainjob), name_of(trainjob))
    record_event(cluster, trainjob, "Warning", "WaiterGone", message, "trainer-trainjob-controller")
    return None
