"""Detects Trainer's own manager by its Lease, before and while we reconcile: two controllers would write the same TrainJobs.

Expiry is measured as in leader election, by how long the Lease has not changed here, so that clocks need not agree. The webhooks of a
Trainer whose manager is gone are found, and removed if asked to. They fail closed: with nobody behind them the API server refuses
every TrainJob, so a controller in the manager's place has nothing to do and no error to show.
"""

from __future__ import annotations

import enum
import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

from trainwright.api.errors import ApiError, Forbidden, NotFound
from trainwright.api.kinds import ENDPOINT_SLICE, LEASE, TRAINJOB, Kind
from trainwright.api.objects import Obj, name_of, namespace_of, uid_of
from trainwright.api.times import parse_time
from trainwright.cluster.protocol import Cluster
from trainwright.submission.controller_lease import UPSTREAM_LEASE
from trainwright.trainer.standalone.leader_election import monotonic_seconds

POLL_SECONDS = 2.0
"""As often as a candidate looks at a Lease."""
_OLD_SECONDS = 60.0
"""A Lease that was renewed longer ago than this when it is first seen has expired; clock differences are smaller."""
_DEFAULT_DURATION_SECONDS = 15.0
_FORBIDDEN_SECONDS = 15.0
"""How long an API server must answer nothing but 403 until that is believed."""
GROUP = "admissionregistration.k8s.io"
CONFIGURATIONS = (
    (Kind(GROUP, "v1", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", namespaced=False), "defaulter"),
    (Kind(GROUP, "v1", "ValidatingWebhookConfiguration", "validatingwebhookconfigurations", namespaced=False), "validator"),
)
"""The kinds, and the first words of the names under which Trainer installs them."""
RIGHTS = "deploy/controller/take-over-webhooks.yaml"
log = logging.getLogger(__name__)


class Sight(enum.Enum):
    """What a look at the Lease has shown."""

    held = "held"
    free = "free"
    unknown = "unknown"
    """The Lease could not be read for the moment."""


@dataclass
class UpstreamManager:
    """The Lease of Trainer's manager, in any namespace. For one thread at a time; `holder` may be read by others."""

    cluster: Cluster
    monotonic: Callable[[], float] = monotonic_seconds
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    holder: str = ""
    """Who holds the Lease, and where, or why nobody knows, while this process must wait; empty while it may reconcile."""
    _observed: dict[str, tuple[Obj, float]] = field(default_factory=dict)
    """By namespace: the spec of the Lease, and until when it is held if it does not change (monotonic clock)."""
    _forbidden_since: float | None = None

    def look(self) -> tuple[Sight, str]:
        """Read the Lease once; returns what was seen, and who holds it or why that is not known.

        Without permission to list Leases no manager can be detected: the Lease counts as free. A restarted API server answers 403 to
        everybody for seconds, so this is so only if it answers nothing else for a while. Raises ApiError for a permanent error.
        """
        try:
            leases = self.cluster.list(LEASE, field_selector=f"metadata.name={UPSTREAM_LEASE}").items
        except Forbidden as error:  # an optional right, or an API server that restarts
            return self._look_forbidden(error)
        except ApiError as error:  # unknown is not free: two managers would write the same objects
            if not error.retryable:
                raise
            log.warning("event=upstream_lease_not_read error=%s", error.message)
            return Sight.unknown, f"unknown, since its Lease cannot be read: {error.message}"
        self._forbidden_since = None
        held = [lease for lease in leases if self._is_held(lease)]
        if not held:
            return Sight.free, ""
        holders = (f"{lease['spec']['holderIdentity']} holds the Lease {namespace_of(lease)}/{UPSTREAM_LEASE}" for lease in held)
        return Sight.held, ", ".join(holders)

    def wait_until_gone(self, stop: threading.Event) -> bool:
        """Wait until no manager holds the Lease. Returns False if `stop` is set first. Raises ApiError for a permanent error."""
        logged = ""
        while not stop.is_set():
            sight, self.holder = self.look()
            if sight is Sight.free:
                if logged:
                    log.info("event=upstream_manager_gone lease=%s", UPSTREAM_LEASE)
                return True
            if self.holder != logged:
                log.warning("event=waiting_for_upstream_manager holder=%r", self.holder)
                logged = self.holder
            stop.wait(POLL_SECONDS)
        return False

    def wait_until_active(self, stop: threading.Event) -> bool:
        """Wait until a manager holds the Lease, which `holder` then names. Returns False if `stop` is set first.

        A manager comes back after an upgrade, a drain or a restart of the API server that has kept it from its Lease.
        """
        while not stop.wait(POLL_SECONDS):
            try:
                sight, holder = self.look()
            except ApiError as error:  # reconciling continues: no manager was active when the Lease was last read
                log.warning("event=upstream_lease_not_read error=%s", error.message)
                continue
            if sight is Sight.held:
                self.holder = holder
                return True
        return False

    def _look_forbidden(self, error: Forbidden) -> tuple[Sight, str]:
        now = self.monotonic()
        if self._forbidden_since is None:
            self._forbidden_since = now
            log.warning("event=upstream_manager_not_detectable error=%s", error.message)
        if now - self._forbidden_since < _FORBIDDEN_SECONDS:
            return Sight.unknown, f"unknown, since its Lease cannot be read: {error.message}"
        return Sight.free, ""

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
        except ValueError:  # no valid time: it is observed instead
            return False
        return abs((self.clock() - renewed).total_seconds()) > _OLD_SECONDS


def check_webhooks(cluster: Cluster, *, removes: bool) -> None:
    """Warn of Trainer's webhooks for TrainJobs that nobody answers; with `removes` delete their configurations.

    For the time when no manager of Trainer is active. Errors are logged: a controller without these rights still reconciles the jobs
    that exist.
    """
    try:
        dead = list(_dead_configurations(cluster))
    except ApiError as error:  # without the rights to read them
        log.info("event=upstream_webhooks_not_checked error=%s", error.message)
        return
    for kind, configuration in dead:
        if not removes:
            log.warning(
                "event=upstream_webhooks_without_endpoints %s=%s: the API server refuses every TrainJob while Trainer's manager is "
                "gone. Start that manager, or remove its webhooks: `kubectl delete %s %s`, or --take-over-webhooks with %s",
                *(kind.singular, name_of(configuration), kind.singular, name_of(configuration), RIGHTS),
            )
            continue  # whoever runs this controller decides
        try:
            cluster.delete(kind, name_of(configuration), uid=uid_of(configuration))
        except NotFound:  # removed meanwhile
            continue
        except ApiError as error:
            log.error(
                "event=upstream_webhooks_not_removed name=%s error=%s rights=%s", name_of(configuration), error.message, RIGHTS
            )
        else:
            log.warning("event=upstream_webhooks_removed %s=%s", kind.singular, name_of(configuration))


def _dead_configurations(cluster: Cluster) -> Iterator[tuple[Kind, Obj]]:
    """Yield the configurations of Trainer of which a webhook for TrainJobs fails closed and has no endpoint. Raises ApiError."""
    for kind, word in CONFIGURATIONS:
        try:
            configuration = cluster.get(kind, f"{word}.{TRAINJOB.group}")
        except NotFound:  # Trainer is not installed, or its webhooks are gone
            continue
        if any(_fails_closed(webhook) and not _has_endpoint(cluster, webhook) for webhook in configuration.get("webhooks") or []):
            yield kind, configuration


def _fails_closed(webhook: Obj) -> bool:
    """Whether this webhook is asked about new TrainJobs, and its silence refuses them. `Fail` is the API's default."""
    concerns_trainjobs = any(
        {TRAINJOB.group, "*"} & set(rule.get("apiGroups") or [])
        and {TRAINJOB.plural, "*", "*/*"} & set(rule.get("resources") or [])
        and {"CREATE", "*"} & set(rule.get("operations") or [])
        for rule in webhook.get("rules") or []
    )
    return concerns_trainjobs and webhook.get("failurePolicy", "Fail") == "Fail"


def _has_endpoint(cluster: Cluster, webhook: Obj) -> bool:
    """Whether a pod is ready behind the webhook's Service; True for a URL, of which the cluster knows nothing. Raises ApiError."""
    service = (webhook.get("clientConfig") or {}).get("service")
    if not service:
        return True
    selector = f"kubernetes.io/service-name={service['name']}"
    slices = cluster.list(ENDPOINT_SLICE, service["namespace"], label_selector=selector).items
    endpoints = [endpoint for found in slices for endpoint in found.get("endpoints") or []]
    return any((endpoint.get("conditions") or {}).get("ready") is not False for endpoint in endpoints)
