"""Detects an active TrainJob controller by the Lease that Trainer's manager, or `trainwright controller`, renews.

A manager without leader election has no Lease, and clients may not be allowed to read Leases: the state is then unknown. The Lease of
a standard installation is read first, since the permission to get that one is all that a client of a healthy cluster needs.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from weakref import WeakSet

from trainwright.api.errors import Forbidden, NotFound
from trainwright.api.kinds import LEASE
from trainwright.api.objects import Obj, name_of, namespace_of
from trainwright.api.times import parse_time
from trainwright.cluster.discovery import server_version
from trainwright.cluster.kubernetes_cluster import KubernetesCluster

UPSTREAM_LEASE = "trainer.kubeflow.org"
"""The Lease of Trainer's manager, in the namespace of its installation."""
OWN_LEASE = "trainwright-controller"
"""The Lease of `trainwright controller`; with `-NAMESPACE` appended if it is limited to one namespace."""
GUARD_LEASE = "trainwright-guard"
"""The Lease of `trainwright guard`: in the namespace that it is limited to, else in its own."""
GUARD_NAMESPACE = "trainwright-system"
"""The namespace of a guard of all namespaces."""
UPSTREAM_NAMESPACE = "kubeflow-system"
"""The namespace of a standard installation of Trainer."""
SYSTEM_NAMESPACES = (UPSTREAM_NAMESPACE, "kubeflow", "opendatahub", "redhat-ods-applications", GUARD_NAMESPACE)
"""Namespaces in which Leases are read if they cannot be listed in all namespaces."""
_FRESH_SECONDS = 120
"""A controller that restarts, or whose clock differs, renews its Lease within this time."""
_RENEWED_SECONDS = 15
"""The duration of the Lease: without a renewal for that long, another replica takes it."""
RENEWAL_SECONDS = 5.0
"""A holder renews its Lease every two seconds: a Lease that changes within this time is held, even if clocks differ."""
_forbidden: WeakSet[KubernetesCluster] = WeakSet()
"""Connections that may not read the Lease of a standard installation: they do not ask again."""


class LeaseState(enum.StrEnum):
    alive = "alive"
    gone = "gone"
    absent = "absent"
    """No Lease: no controller, or a manager without leader election."""
    unknown = "unknown"


@dataclass(frozen=True)
class ControllerState:
    """The state of the controller's Lease; `reason` explains it."""

    lease: LeaseState
    reason: str
    runs_plugins: bool = False
    """Whether the active controller is one of this project, which runs the policies of plugins."""


_UNREADABLE = ControllerState(
    LeaseState.unknown, f"the Lease {UPSTREAM_NAMESPACE}/{UPSTREAM_LEASE} cannot be read: a permission is missing"
)


def is_embedded_server(cluster: KubernetesCluster) -> bool:
    """Whether an API server is that of an embedded cluster, by its version. Raises ApiError."""
    return "+trainwright" in server_version(cluster)


def controller_state(
    cluster: KubernetesCluster,
    namespace: str,
    *,
    now: datetime | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> ControllerState:
    """Return whether a controller for the TrainJobs of this namespace is active, according to the Leases.

    One request if Trainer is installed in `kubeflow-system` and active. If this account may not read that Lease, no other is
    tried, and the same connection does not ask again. Raises ApiError.
    """
    if is_embedded_server(cluster):
        return ControllerState(LeaseState.alive, "the embedded control plane runs its own controllers", runs_plugins=True)
    if cluster in _forbidden:
        return _UNREADABLE
    try:
        return _state_of_leases(cluster, namespace, now or datetime.now(UTC), sleep)
    except Forbidden:  # asked once: a right does not come back within a run
        _forbidden.add(cluster)
        return _UNREADABLE


def is_guarded(
    cluster: KubernetesCluster, namespace: str, *, by_controller: bool = True, now: datetime | None = None
) -> bool | None:
    """Whether something on the cluster ends the jobs of this namespace that nobody waits for any more; None if that is not known.

    A guard, or with `by_controller` the controller of an embedded cluster or `trainwright controller`, which have TrainJobs alone.
    Raises ApiError.
    """
    if by_controller and is_embedded_server(cluster):
        return True
    is_known = True
    for place in dict.fromkeys((namespace, GUARD_NAMESPACE)):
        try:
            lease = cluster.get(LEASE, GUARD_LEASE, place)
        except NotFound:  # the next place may have it
            continue
        except Forbidden:  # an optional right
            is_known = False
            continue
        if _is_held(lease) and abs(_seconds_since_renewal(lease, now or datetime.now(UTC))) < _FRESH_SECONDS:
            return True
    if not is_known or not by_controller:
        return False if is_known else None
    state = controller_state(cluster, namespace, now=now)
    return state.runs_plugins or (None if state.lease is LeaseState.unknown else False)


def _state_of_leases(
    cluster: KubernetesCluster, namespace: str, current_time: datetime, sleep: Callable[[float], None]
) -> ControllerState:
    """Return the state. Raises Forbidden if the Lease of a standard installation cannot be read."""
    leases, is_complete = [], True
    for lease in _leases(cluster, namespace):
        if lease is None:
            is_complete = False
        elif _is_held(lease) and abs(since := _seconds_since_renewal(lease, current_time)) < _FRESH_SECONDS:
            words = (
                "is renewed"
                if abs(since) <= _RENEWED_SECONDS
                else f"was last renewed {since:.0f} s ago, so its controller may be away"
            )
            return ControllerState(LeaseState.alive, f"the Lease {_key(lease)} {words}", _is_own(lease))
        else:
            leases.append(lease)
    held = [lease for lease in leases if _is_held(lease)]
    if held:
        sleep(RENEWAL_SECONDS)
        renewals = {_key(lease): _renew_time(lease) for lease in _leases(cluster, namespace) if lease is not None}
        if changed := next(
            (lease for lease in held if renewals.get(_key(lease), _renew_time(lease)) != _renew_time(lease)), None
        ):
            reason = f"the Lease {_key(changed)} is renewed, with a different clock"
            return ControllerState(LeaseState.alive, reason, _is_own(changed))
    if leases:
        last = max(leases, key=_renew_time)
        return ControllerState(LeaseState.gone, f"the Lease {_key(last)} was last renewed at {_renew_time(last) or 'no time'}")
    if is_complete:
        return ControllerState(LeaseState.absent, f"there is no Lease {UPSTREAM_LEASE} or {OWN_LEASE}")
    return ControllerState(LeaseState.unknown, "Leases of other namespaces cannot be listed")


def _leases(cluster: KubernetesCluster, namespace: str) -> Iterator[Obj | None]:
    """Yield the Leases of controllers, first that of a standard installation; None if there may be more that cannot be read.

    Raises Forbidden if the first cannot be read.
    """
    with suppress(NotFound):  # another installation may have another name
        yield cluster.get(LEASE, UPSTREAM_LEASE, UPSTREAM_NAMESPACE)
    lease_names = (UPSTREAM_LEASE, OWN_LEASE, f"{OWN_LEASE}-{namespace}")
    try:
        for name in lease_names:  # selected by name, since every node has a Lease, too
            found = cluster.list(LEASE, field_selector=f"metadata.name={name}").items
            yield from (lease for lease in found if _key(lease) != f"{UPSTREAM_NAMESPACE}/{UPSTREAM_LEASE}")
    except (Forbidden, NotFound):
        yield None
        yield from _leases_in_known_namespaces(cluster, lease_names)


def _leases_in_known_namespaces(cluster: KubernetesCluster, lease_names: tuple[str, ...]) -> Iterator[Obj]:
    for namespace in SYSTEM_NAMESPACES[1:]:
        for name in lease_names[1:] if namespace == SYSTEM_NAMESPACES[-1] else lease_names[:1]:
            try:
                yield cluster.get(LEASE, name, namespace)
            except (Forbidden, NotFound):  # the next name or namespace may have it
                continue


def _is_own(lease: Obj) -> bool:
    return name_of(lease).startswith(OWN_LEASE)


def _is_held(lease: Obj) -> bool:
    return bool((lease.get("spec") or {}).get("holderIdentity"))


def _seconds_since_renewal(lease: Obj, now: datetime) -> float:
    try:
        return (now - parse_time(_renew_time(lease))).total_seconds()
    except ValueError:  # no valid time
        return float("inf")


def _renew_time(lease: Obj) -> str:
    return str((lease.get("spec") or {}).get("renewTime") or "")


def _key(lease: Obj) -> str:
    return f"{namespace_of(lease)}/{name_of(lease)}"
