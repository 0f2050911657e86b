"""Leader election with a Lease that the leader renews, according to client-go's rules, and the fence that it puts around writes.

Candidates do not compare clocks with the holder: they measure with a monotonic clock how long a Lease has not changed. The holder
counts from the time when it sent the last successful renewal, so that it stops before another candidate may start. Writes are allowed
only while the Lease is held, so that a delayed worker cannot write after losing it.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Unpack

from trainwright.api.errors import AlreadyExists, ApiError, Conflict, NotFound
from trainwright.api.kinds import LEASE, Kind
from trainwright.api.objects import Obj, copy_of
from trainwright.cluster.protocol import Cluster, CreateOptions, DelegatingCluster, DeleteOptions, PatchOptions

_JITTER = 1.2
"""Factor of random jitter on the retry period, so that candidates do not retry at the same time."""
log = logging.getLogger(__name__)


class LeaseLost(ApiError):
    """Another controller may be the leader now, so writes are not allowed any more."""

    code, reason = 409, "LeaseLost"


@dataclass(frozen=True)
class LeaderElectionConfig:
    """Lease duration, renew deadline and retry period in seconds, as in client-go."""

    lease_duration: int = 15
    renew_deadline: float = 10.0
    retry_period: float = 2.0

    def problem(self) -> str:
        """Return why the configuration is invalid, or an empty string."""
        if self.retry_period <= 0:
            return "the retry period must be more than 0 s"
        if self.lease_duration < 1:
            return "the lease duration must be at least 1 s"
        if not self.lease_duration > self.renew_deadline:
            return (
                f"the lease duration ({self.lease_duration} s) must be more than the renew deadline ({self.renew_deadline:g} s)"
            )
        if not self.renew_deadline > self.retry_period * _JITTER:
            return (
                f"the renew deadline ({self.renew_deadline:g} s) must be more than {_JITTER} times "
                f"the retry period ({self.retry_period:g} s)"
            )
        return ""


def monotonic_seconds() -> float:
    """A monotonic clock that, if supported, includes the time of system suspend."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


@dataclass
class LeaderElector:
    """A candidate with a unique `identity`. For one thread; `is_held` and `until` are thread-safe."""

    cluster: Cluster
    name: str
    namespace: str
    identity: str
    config: LeaderElectionConfig = field(default_factory=LeaderElectionConfig)
    monotonic: Callable[[], float] = monotonic_seconds
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)

    def __post_init__(self) -> None:
        self._observed: Obj | None = None
        self._observed_at = 0.0
        self._until = float("-inf")
        self._logged_holder = ""

    @property
    def until(self) -> float:
        """The time by the monotonic clock until which this candidate may write."""
        return self._until

    def is_held(self) -> bool:
        return self.monotonic() < self._until

    def acquire(self, stop: threading.Event) -> bool:
        """Wait until this candidate holds the Lease. Returns False if `stop` is set first."""
        while not stop.is_set():
            if self.try_acquire_or_renew():
                return True
            stop.wait(self.config.retry_period * (1 + random.random() * _JITTER))
        return False

    def renew(self, stop: threading.Event) -> None:
        """Renew the Lease until `stop` is set or it could not be renewed in time."""
        while not stop.wait(self.config.retry_period):
            self.try_acquire_or_renew()
            if not self.is_held():
                return  # another candidate may start: this one must not come back

    def try_acquire_or_renew(self) -> bool:
        """Try once to acquire or renew the Lease. Errors are logged and return False."""
        started = self.monotonic()
        try:
            is_held = self._acquire_or_renew()
        except (Conflict, AlreadyExists) as error:  # another candidate was faster
            log.debug("lease not acquired name=%s error=%s", self.name, error.message)
            return False
        except ApiError as error:  # tried again until the deadline
            log.warning("lease request failed name=%s/%s error=%s", self.namespace, self.name, error.message)
            return False
        if is_held:
            self._until = started + self.config.renew_deadline
        return is_held

    def release(self) -> bool:
        """Release the Lease if held, so that the next candidate need not wait. All work must have ended before."""
        if self._observed is None or not self._is_own() or not self.is_held():
            return False  # nothing to release, or another candidate may hold it
        self._until = float("-inf")
        now = _micro_time(self.clock())
        spec = {**self._observed["spec"], "holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": now, "acquireTime": now}
        try:
            self.cluster.update({**self._observed, "spec": spec})
        except ApiError as error:  # it expires
            log.warning("lease not released name=%s/%s error=%s", self.namespace, self.name, error.message)
            return False
        return True

    def _acquire_or_renew(self) -> bool:
        # The observed version is current, or the update fails with Conflict.
        if self._observed is not None and self._is_own() and self.is_held():
            try:
                self._observe(self.cluster.update(self._desired(self._observed)))
                return True
            except (Conflict, NotFound) as error:  # an earlier update may have succeeded without a response
                log.debug("lease read again name=%s error=%s", self.name, error.message)
        try:
            found = self.cluster.get(LEASE, self.name, self.namespace)
        except NotFound:  # the first candidate, or it was deleted
            self._observe(self.cluster.create(self._desired(None)))
            return True
        if self._observed is None or found["metadata"]["resourceVersion"] != self._observed["metadata"]["resourceVersion"]:
            self._observe(found)
        if self._is_held_by_another(found):
            return False  # its holder has renewed it in time
        self._observe(self.cluster.update(self._desired(found)))
        return True

    def _is_held_by_another(self, lease: Obj) -> bool:
        """Whether another candidate holds the Lease: it was observed to change within its lease duration."""
        spec = lease.get("spec") or {}
        holder = spec.get("holderIdentity") or ""
        if holder != self._logged_holder:
            log.info("lease name=%s/%s holder=%s", self.namespace, self.name, holder or "(none)")
            self._logged_holder = holder
        if not holder or holder == self.identity:
            return False
        return self.monotonic() < self._observed_at + float(spec.get("leaseDurationSeconds") or 0)

    def _desired(self, found: Obj | None) -> Obj:
        now = _micro_time(self.clock())
        before = (found or {}).get("spec") or {}
        spec = {**before, "holderIdentity": self.identity, "leaseDurationSeconds": self.config.lease_duration, "renewTime": now}
        if before.get("holderIdentity") != self.identity:
            spec["acquireTime"] = now
            spec["leaseTransitions"] = (before.get("leaseTransitions") or 0) + 1 if found is not None else 0
        if found is not None:
            return {**copy_of(found), "spec": spec}
        metadata = {"name": self.name, "namespace": self.namespace}
        return {"apiVersion": LEASE.api_version, "kind": LEASE.kind, "metadata": metadata, "spec": spec}

    def _observe(self, lease: Obj) -> None:
        self._observed, self._observed_at = lease, self.monotonic()

    def _is_own(self) -> bool:
        return self._observed is not None and (self._observed.get("spec") or {}).get("holderIdentity") == self.identity


def _micro_time(time: datetime) -> str:
    """Format a MicroTime."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class FencedCluster(DelegatingCluster):
    """A `Cluster` that raises LeaseLost for writes without the Lease. Requests already sent are not affected."""

    def __init__(self, cluster: Cluster, elector: LeaderElector):
        super().__init__(cluster)
        self._elector = elector

    def _check(self) -> None:
        if not self._elector.is_held():
            raise LeaseLost(f"write rejected: the Lease {self._elector.name} could not be renewed in time")

    def create(self, obj: Obj, **options: Unpack[CreateOptions]) -> Obj:
        self._check()
        return super().create(obj, **options)

    def update(self, obj: Obj) -> Obj:
        self._check()
        return super().update(obj)

    def update_status(self, obj: Obj) -> Obj:
        self._check()
        return super().update_status(obj)

    def patch(self, kind: Kind, name: str, patch: Any, namespace: str | None = None, **options: Unpack[PatchOptions]) -> Obj:
        self._check()
        return super().patch(kind, name, patch, namespace, **options)

    def delete(self, kind: Kind, name: str, namespace: str | None = None, **options: Unpack[DeleteOptions]) -> None:
        self._check()
        super().delete(kind, name, namespace, **options)
