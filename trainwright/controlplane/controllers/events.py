"""Records Events, as shown by `kubectl describe`. A repeated event increments the count of the existing one."""

from __future__ import annotations

import hashlib
import logging
from typing import Literal

from trainwright.api.errors import AlreadyExists, ApiError
from trainwright.api.kinds import EVENT
from trainwright.api.objects import Obj, name_of, namespace_of, uid_of
from trainwright.api.times import now
from trainwright.cluster.protocol import Cluster

_MAX_MESSAGE = 1024
log = logging.getLogger(__name__)


def record_event(
    cluster: Cluster, about: Obj, kind: Literal["Normal", "Warning"], reason: str, message: str, source: str, path: str = ""
) -> None:
    """Record an Event about an object, or about the part at `path` in it. Errors are logged, and do not affect the caller."""
    message = message if len(message) <= _MAX_MESSAGE else message[: _MAX_MESSAGE - 4] + " ..."
    digest = hashlib.sha256(f"{uid_of(about)}/{path}/{reason}/{message}".encode()).hexdigest()[:16]
    name, namespace = f"{name_of(about)}.{digest}", namespace_of(about) or "default"
    time = now()
    event: Obj = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": namespace},
        "involvedObject": {
            "apiVersion": about.get("apiVersion"),
            "kind": about.get("kind"),
            "namespace": namespace,
            "name": name_of(about),
            "uid": uid_of(about),
            **({"fieldPath": path} if path else {}),
        },
        "type": kind,
        "reason": reason,
        "message": message,
        "source": {"component": source},
        "reportingComponent": source,
        "firstTimestamp": time,
        "lastTimestamp": time,
        "count": 1,
    }
    try:
        cluster.create(event)
    except AlreadyExists:  # recorded before: only its count and time change
        _increment_count(cluster, name, namespace, time)
    except ApiError as error:  # logged: the work of the caller does not depend on it
        causes = {cause.get("reason") for cause in error.details.get("causes") or []}
        level = logging.DEBUG if "NamespaceTerminating" in causes else logging.WARNING
        log.log(level, "event not written reason=%s about=%s error=%s", reason, name_of(about), error.message)


def _increment_count(cluster: Cluster, name: str, namespace: str, time: str) -> None:
    try:
        count = int(cluster.get(EVENT, name, namespace).get("count") or 1)
        cluster.patch(EVENT, name, {"count": count + 1, "lastTimestamp": time}, namespace)
    except ApiError as error:  # expired meanwhile, or not writable: the count is only informative
        log.debug("event not counted name=%s error=%s", name, error.message)
