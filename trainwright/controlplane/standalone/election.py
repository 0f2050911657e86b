"""Who of several controllers works: the one whose name stands in a Lease that it renews (client-go's rules).

A candidate never compares its clock with the holder's: it measures, by a clock of its own that only goes forward, how long a Lease has
not changed. The holder counts from the moment when it sent the last renewal that succeeded, so it stops before others may begin.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from trainwright.api.errors import AlreadyExists, ApiError, Conflict, NotFound
from trainwright.api.kinds import LEASE
from trainwright.api.objects import Obj, copy_of
from trainwright.cluster.protocol import Cluster

_JITTER = 1.2
"""A wait between two tries is up to this much longer, so that candidates do not come at once."""
log = logging.getLogger(__name__)


class LeaseLost(ApiError):
    """Another controller may be at work by now: nothing may be written any more."""

    code, reason = 409, "LeaseLost"


@dataclass(frozen=True)
class Terms:
    """In seconds: how long a Lease holds after a renewal, how long its holder tries to renew it, the pause between two tries."""

    lease: int = 15
    renew: float = 10.0
    retry: float = 2.0

    def problem(self) -> str:
        """Why these terms cannot work; empty where they can."""
        if self.retry <= 0:
            return "the pause between two tries must be more than 0 s"
        if self.lease < 1:
            return "a Lease holds for 1 s at least"
        if not self.lease > self.renew:
            return f"the Lease ({self.lease} s) must outlast the time to renew it ({self.renew:g} s)"
        if not self.renew > self.retry * _JITTER:
            return (
                f"the time to renew the Lease ({self.renew:g} s) must be more than {_JITTER} times the pause ({self.retry:g} s)"
            )
        return ""


def steady_seconds() -> float:
    """A clock that nobody sets and that, where the system has one, goes on while it sleeps."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


@dataclass
class Election:
    """One candidate. `identity` must be its alone. For one thread, but `is_held` and `until` are anybody's to ask."""

    cluster: Cluster
    name: str
    namespace: str
    identity: str
    terms: Terms = field(default_factory=Terms)
    steady: Callable[[], float] = steady_seconds
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)

    def __post_init__(self) -> None:
        self._observed: Obj | None = None
        self._observed_at = 0.0
        self._until = float("-inf")
        self._reported = ""

    @property
    def until(self) -> float:
        """Until when, by the steady clock, we may write."""
        return self._until

    def is_held(self) -> bool:
        return self.steady() < self._until

    def acquire(self, stop: threading.Event) -> bool:
        """Wait until the Lease is ours. False when `stop` was set first."""
        while not stop.is_set():
            if self.attempt():
                return True
            stop.wait(self.terms.retry * (1 + random.random() * _JITTER))
        return False

    def renew(self, stop: threading.Event) -> None:
        """Keep the Lease; returns when `stop` is set, or when it could not be renewed in time."""
        while not stop.wait(self.terms.retry):
            self.attempt()
            if not self.is_held():
                return

    def attempt(self) -> bool:
        """Try to take or to renew the Lease, once. Every error is logged, and means no."""
        began = self.steady()
        try:
            done = self._take_or_renew()
        except (Conflict, AlreadyExists) as error:  # somebody else was quicker
            log.debug("lease not taken name=%s error=%s", self.name, error.message)
            return False
        except ApiError as error:
            log.warning("lease not reached name=%s/%s error=%s", self.namespace, self.name, error.message)
            return False
        if done:
            self._until = began + self.terms.renew
        return done

    def release(self) -> bool:
        """Give the Lease back, if it is ours, so that the next need not wait. Before that, all work must have ended."""
        if self._observed is None or not self._is_ours() or not self.is_held():
            return False
        self._until = float("-inf")
        now = _moment(self.clock())
        spec = {**self._observed["spec"], "holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": now, "acquireTime": now}
        try:
            self.cluster.update({**self._observed, "spec": spec})
        except ApiError as error:
            log.warning("lease not released name=%s/%s error=%s", self.namespace, self.name, error.message)
            return False
        return True

    def _take_or_renew(self) -> bool:
        if (
            self._observed is not None and self._is_ours() and self.is_held()
        ):  # our own last word is the newest, or a Conflict says no
            try:
                self._note(self.cluster.update(self._wanted(self._observed)))
                return True
            except (Conflict, NotFound) as error:  # our own write may have arrived although its answer did not
                log.debug("lease looked at again name=%s error=%s", self.name, error.message)
        try:
            found = self.cluster.get(LEASE, self.name, self.namespace)
        except NotFound:
            self._note(self.cluster.create(self._wanted(None)))
            return True
        if self._observed is None or found["metadata"]["resourceVersion"] != self._observed["metadata"]["resourceVersion"]:
            self._note(found)
        if self._is_anothers(found):
            return False
        self._note(self.cluster.update(self._wanted(found)))
        return True

    def _is_anothers(self, lease: Obj) -> bool:
        """Whether somebody else holds the Lease, as far as we have seen: it changed within the time for which it holds."""
        spec = lease.get("spec") or {}
        holder = spec.get("holderIdentity") or ""
        if holder != self._reported:
            log.info("lease name=%s/%s holder=%s", self.namespace, self.name, holder or "(nobody)")
            self._reported = holder
        if not holder or holder == self.identity:
            return False
        return self.steady() < self._observed_at + float(spec.get("leaseDurationSeconds") or 0)

    def _wanted(self, found: Obj | None) -> Obj:
        now = _moment(self.clock())
        before = (found or {}).get("spec") or {}
        spec = {**before, "holderIdentity": self.identity, "leaseDurationSeconds": self.terms.lease, "renewTime": now}
        if before.get("holderIdentity") != self.identity:
            spec["acquireTime"] = now
            spec["leaseTransitions"] = (before.get("leaseTransitions") or 0) + 1 if found is not None else 0
        if found is not None:
            return {**copy_of(found), "spec": spec}
        metadata = {"name": self.name, "namespace": self.namespace}
        return {"apiVersion": LEASE.api_version, "kind": LEASE.kind, "metadata": metadata, "spec": spec}

    def _note(self, lease: Obj) -> None:
        self._observed, self._observed_at = lease, self.steady()

    def _is_ours(self) -> bool:
        return self._observed is not None and (self._observed.get("spec") or {}).get("holderIdentity") == self.identity


def _moment(moment: datetime) -> str:
    """A MicroTime."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
