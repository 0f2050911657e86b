"""Events go an hour after they were last written, as Kubernetes has it; else a home that lives for years would fill with them.

The last write is the creation, or the last sighting where that came later: sightings can lie before the creation.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from trainwright.api.errors import NotFound
from trainwright.api.kinds import EVENT
from trainwright.api.objects import Obj
from trainwright.api.times import seconds_between
from trainwright.cluster.protocol import Cluster
from trainwright.controlplane.controllers.controller import Controller, own_key
from trainwright.controlplane.controllers.queue import Key

LIFETIME_SECONDS = 3600.0


def event_expiry(cluster: Cluster, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> Controller:
    def left(event: Obj) -> float:
        times = (event["metadata"]["creationTimestamp"], event.get("lastTimestamp"), event.get("eventTime"))
        return LIFETIME_SECONDS - min(seconds_between(time, clock()) for time in times if time)

    def reconcile(key: Key) -> float | None:
        namespace, name = key
        try:
            again = left(cluster.get(EVENT, name, namespace))
            if again > 0:
                return again
            cluster.delete(EVENT, name, namespace)
        except NotFound:
            return None
        return None

    return Controller("event-expiry", reconcile, {EVENT: own_key}, delays={EVENT: lambda _change, event: left(event)})
