"""Deletes Events an hour after they were last written, like Kubernetes, so that they do not accumulate.

The last write is the later of the creation and the last occurrence, which may precede the creation.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from trainwright.api.errors import NotFound
from trainwright.api.kinds import EVENT
from trainwright.api.objects import Obj
from trainwright.api.times import seconds_between
from trainwright.cluster.protocol import Cluster
from trainwright.controlplane.controllers.controller import Controller, object_key
from trainwright.controlplane.controllers.queue import Key

LIFETIME_SECONDS = 3600.0


def event_expiry(cluster: Cluster, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> Controller:
    def seconds_left(event: Obj) -> float:
        times = (event["metadata"]["creationTimestamp"], event.get("lastTimestamp"), event.get("eventTime"))
        return LIFETIME_SECONDS - min(seconds_between(time, clock()) for time in times if time)

    def reconcile(key: Key) -> float | None:
        namespace, name = key
        try:
            left = seconds_left(cluster.get(EVENT, name, namespace))
            if left > 0:
                return left
            cluster.delete(EVENT, name, namespace)
        except NotFound:
            return None
        return None

    return Controller("event-expiry", reconcile, {EVENT: object_key}, delays={EVENT: lambda _change, event: seconds_left(event)})
