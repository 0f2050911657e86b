"""Detects Trainer's own manager by its Lease, and waits until it has gone: two controllers would write the same TrainJobs.

Expiry is measured as in leader election, by how long the Lease has not changed here, so that clocks need not agree.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from trainwright.api.errors import ApiError, Forbidden
from trainwright.api.kinds import LEASE
from trainwright.api.objects import Obj, namespace_of
from trainwright.api.times import parse_time
from trainwright.cluster.protocol import Cluster
from trainwright.controlplane.standalone.leader_election import monotonic_seconds
from trainwright.submission.controller_lease import UPSTREAM_LEASE

POLL_SECONDS = 2.0
"""As often as a candidate looks at a Lease."""
_OLD_SECONDS = 60.0
"""A Lease that was renewed longer ago than this when it is first seen has expired; clock differences are smaller."""
_DEFAULT_DURATION_SECONDS = 15.0
log = logging.getLogger(__name__)


@dataclass
class UpstreamManager:
    """The Lease of Trainer's manager, in any namespace. For one thread; `holder` may be read by others."""

    cluster: Cluster
    monotonic: Callable[[], float] = monotonic_seconds
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    holder: str = ""
    """Who held the Lease when it was last read, and where; empty if it is free."""
    _observed: dict[str, tuple[Obj, float]] = field(default_factory=dict)
    """By namespace: the spec of the Lease, and until when it is held if it does not change (monotonic clock)."""

    def is_active(self) -> bool:
        """Read the Lease, and return whether a manager holds it; also True if it cannot be read for the moment.

        Without permission to list Leases, which is logged, no manager can be detected. Raises ApiError for a permanent error.
        """
        try:
            leases = self.cluster.list(LEASE, field_selector=f"metadata.name={UPSTREAM_LEASE}").items
        except Forbidden as error:
            log.info("event=upstream_manager_not_detectable error=%s", error.message)
            self.holder = ""
            return False
        except ApiError as error:
            if not error.retryable:
                raise
            log.warning("event=upstream_lease_not_read error=%s", error.message)
            self.holder = self.holder or "unknown, since its Lease cannot be read"
            return True
        held = [lease for lease in leases if self._is_held(lease)]
        self.holder = ", ".join(
            f"{lease['spec']['holderIdentity']} holds the Lease {namespace_of(lease)}/{UPSTREAM_LEASE}" for lease in held
        )
        return bool(held)

    def wait_until_gone(self, stop: threading.Event) -> bool:
        """Wait until no manager holds the Lease. Returns False if `stop` is set first. Raises ApiError for a permanent error."""
        logged = ""
        while not stop.is_set():
            if not self.is_active():
                if logged:
                    log.info("event=upstream_manager_gone lease=%s", UPSTREAM_LEASE)
                return True
            if self.holder != logged:
                log.warning("event=waiting_for_upstream_manager holder=%r", self.holder)
                logged = self.holder
            stop.wait(POLL_SECONDS)
        return False

    def _is_held(self, lease: Obj) -> bool:
        spec, where, now = lease.get("spec") or {}, namespace_of(lease), self.monotonic()
        seen, until = self._observed.get(where, (None, 0.0))
        if seen != spec:
            duration = float(spec.get("leaseDurationSeconds") or _DEFAULT_DURATION_SECONDS)
            until = float("-inf") if seen is None and self._is_old(spec) else now + duration
            self._observed[where] = spec, until
        return bool(spec.get("holderIdentity")) and now < until

    def _is_old(self, spec: Obj) -> bool:
        """Whether the Lease was renewed long ago. One without a valid time is observed until it has not changed for long enough."""
        try:
            renewed = parse_time(str(spec.get("renewTime") or ""))
        except ValueError:
            return False
        return abs((self.clock() - renewed).total_seconds()) > _OLD_SECONDS
