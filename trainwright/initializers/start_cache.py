"""What the dataset initializer does for `cache://SCHEMA/TABLE`: starts the cache of its TrainJob, and waits until it is ready.

Every failure raises, so that the TrainJob fails; Trainer's initializer ends as if it had succeeded.
"""

from __future__ import annotations

import http.client
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from trainwright.api import names
from trainwright.api.conditions import is_true
from trainwright.api.errors import AlreadyExists, ApiError, Forbidden
from trainwright.api.kinds import JOBSET, POD, TRAINJOB, kind_of
from trainwright.api.objects import Obj, described, is_controlled_by, is_deleting, name_of, namespace_of
from trainwright.cluster.protocol import Cluster
from trainwright.datacache.objects import HEAD, HEALTH_PORT, cache_objects
from trainwright.datacache.settings import OPEN, CacheError, CacheSettings
from trainwright.initializers.cache_failure import cache_failure, role_of
from trainwright.jobs.diagnosis.pod_failure import waiting_of

_PAUSE_SECONDS = 0.3
_NAME_SECONDS = 15.0
"""For the Service's name to be known in this pod."""
_REPORT_SECONDS = 10.0
log = logging.getLogger(__name__)
REQUIREMENT = "On the embedded cluster, a data cache requires Linux and isolation of pods; see `trainwright status`"
IsReachable = Callable[[str], bool]


@dataclass(frozen=True)
class StartedCache:
    """The name of the cache's Service, and seconds until it was ready."""

    service: str
    seconds: float


def is_reachable(service: str) -> bool:
    """Whether the head answers at the name of its Service that it is ready."""
    connection = http.client.HTTPConnection(service, HEALTH_PORT, timeout=5)
    try:
        connection.request("GET", "/ready")
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):  # asked again until its name is known here
        return False
    finally:
        connection.close()


def start_cache(cluster: Cluster, settings: CacheSettings, namespace: str, *, reach: IsReachable = is_reachable) -> StartedCache:
    """Create the cache of a TrainJob, or take the one that it has, and wait until readers can use it.

    Raises CacheError with the reason if it cannot be created, fails, or is not ready in `settings.start_seconds`.
    """
    started = time.monotonic()
    deadline = started + settings.start_seconds
    if settings.is_open:
        log.warning("event=open_cache variable=%s effect=%r", names.CACHE_OPEN_VARIABLE, OPEN)
    try:
        trainjob = cluster.get(TRAINJOB, settings.job, namespace)
        for obj in cache_objects(settings, trainjob):
            _ensure(cluster, obj, trainjob)
        _wait_until_ready(cluster, settings, namespace, deadline)
    except ApiError as error:  # an initializer that fails must fail its TrainJob
        advice = (
            "; see docs/data-cache.md for the rights of the initializer's service account" if isinstance(error, Forbidden) else ""
        )
        raise CacheError(f"the data cache of {settings.job} cannot be started: {error.message}{advice}") from error
    _check_name(settings.service, reach)
    return StartedCache(settings.service, round(time.monotonic() - started, 1))


def _ensure(cluster: Cluster, wanted: Obj, trainjob: Obj) -> None:
    """Create an object, unless this TrainJob has it from an earlier attempt of the initializer."""
    kind = kind_of(wanted)
    assert kind is not None, wanted["kind"]
    try:
        cluster.create(wanted)
        log.info("event=created kind=%s name=%s", kind.kind, name_of(wanted))
    except AlreadyExists:  # created by an earlier attempt
        found = cluster.get(kind, name_of(wanted), namespace_of(wanted))
        if not is_controlled_by(found, trainjob) or is_deleting(found):
            raise CacheError(
                f"{described(found)} exists and is not of this TrainJob {name_of(trainjob)}; remove it, or rename the TrainJob"
            ) from None


def _wait_until_ready(cluster: Cluster, settings: CacheSettings, namespace: str, deadline: float) -> None:
    next_report = time.monotonic() + _REPORT_SECONDS
    while True:
        jobset = cluster.get(JOBSET, settings.name, namespace)
        pods = cluster.list(POD, namespace, label_selector=f"{names.JOBSET_NAME_LABEL}={settings.name}").items
        if reason := cache_failure(jobset, pods):
            raise CacheError(f"the data cache {settings.name} failed: {reason}")
        if any(role_of(pod) == HEAD and is_true(pod, "Ready") for pod in pods):
            return
        now = time.monotonic()
        if now > deadline:
            raise CacheError(
                f"the data cache {settings.name} was not ready after {settings.start_seconds} s: {_waiting(pods)}; "
                "CACHE_START_SECONDS sets another limit"
            )
        if now > next_report:
            log.info("event=waiting_for_cache name=%s reason=%s", settings.name, _waiting(pods))
            next_report = now + _REPORT_SECONDS
        time.sleep(_PAUSE_SECONDS)


def _waiting(pods: Iterable[Obj]) -> str:
    reasons = [f"pod {name_of(pod)}: {waiting.message}" for pod in pods if (waiting := waiting_of(pod)) is not None]
    return "; ".join(reasons[:2]) or "its pods are still loading the table"


def _check_name(service: str, reach: IsReachable) -> None:
    deadline = time.monotonic() + _NAME_SECONDS
    while not reach(service):
        if time.monotonic() > deadline:
            raise CacheError(
                f"the cache is ready, but not reachable at {service}: names of Services do not resolve in this pod. {REQUIREMENT}"
            )
        time.sleep(_PAUSE_SECONDS)
