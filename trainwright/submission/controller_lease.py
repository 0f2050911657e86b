"""Whether somebody acts on TrainJobs: the Lease that Trainer's manager, or our controller, renews while it works.

A manager that runs alone may have no Lease at all, and who submits jobs may not be allowed to read one: then nobody knows.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from trainwright.api.errors import Forbidden, NotFound
from trainwright.api.kinds import LEASE
from trainwright.api.objects import Obj, name_of, namespace_of
from trainwright.api.times import parse_time
from trainwright.cluster.discovery import server_version
from trainwright.cluster.kubernetes_cluster import KubernetesCluster

UPSTREAM_LEASE = "trainer.kubeflow.org"
"""The Lease of Trainer's own manager, in whatever namespace that was installed."""
OWN_LEASE = "trainwright-controller"
"""The Lease of `trainwright controller`; one for a single namespace has that behind it."""
SYSTEM_NAMESPACES = ("kubeflow-system", "kubeflow", "opendatahub", "redhat-ods-applications", "trainwright-system")
"""Where it is looked for by whoever may not look everywhere."""
_FRESH_SECONDS = 120
RENEWAL_SECONDS = 5.0
"""A holder renews its Lease every two seconds: one that changes within this time is held, whatever our clock makes of its time."""


class LeaseState(enum.StrEnum):
    alive = "alive"
    gone = "gone"
    absent = "absent"
    """No Lease anywhere: nobody works, or a manager that runs alone."""
    unknown = "unknown"


@dataclass(frozen=True)
class ControllerState:
    """`reason` is a sentence about it."""

    lease: LeaseState
    reason: str


def controller_state(
    cluster: KubernetesCluster,
    namespace: str,
    *,
    now: datetime | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> ControllerState:
    """What the Leases tell of a controller that acts on the TrainJobs of this namespace. Raises ApiError."""
    if "+trainwright" in server_version(cluster):
        return ControllerState(LeaseState.alive, "the embedded control plane runs its controllers itself")
    current_time = now or datetime.now(UTC)
    leases, is_complete = [], True
    for lease in _leases(cluster, namespace):
        if lease is None:
            is_complete = False
        elif _is_held(lease) and abs(_seconds_since_renewal(lease, current_time)) < _FRESH_SECONDS:
            return ControllerState(LeaseState.alive, f"the Lease {_key(lease)} is renewed")
        else:
            leases.append(lease)
    held = [lease for lease in leases if _is_held(lease)]
    if held:
        sleep(RENEWAL_SECONDS)
        renewals = {_key(lease): _renew_time(lease) for lease in _leases(cluster, namespace) if lease is not None}
        if changed := next((lease for lease in held if renewals.get(_key(lease), _renew_time(lease)) != _renew_time(lease)), None):
            return ControllerState(LeaseState.alive, f"the Lease {_key(changed)} is renewed, by a clock that is not ours")
    if leases:
        last = max(leases, key=_renew_time)
        return ControllerState(LeaseState.gone, f"the Lease {_key(last)} was renewed last at {_renew_time(last) or 'no time'}")
    if is_complete:
        return ControllerState(LeaseState.absent, f"there is no Lease {UPSTREAM_LEASE} or {OWN_LEASE}")
    return ControllerState(LeaseState.unknown, "Leases may not be read")


def _leases(cluster: KubernetesCluster, namespace: str) -> Iterator[Obj | None]:
    """Those of controllers; None where it is not known whether there are more."""
    lease_names = (UPSTREAM_LEASE, OWN_LEASE, f"{OWN_LEASE}-{namespace}")
    try:
        for name in lease_names:  # by name: every node of a cluster has a Lease, too
            yield from cluster.list(LEASE, field_selector=f"metadata.name={name}").items
    except (Forbidden, NotFound):
        yield None
        yield from _leases_in_known_namespaces(cluster, lease_names)


def _leases_in_known_namespaces(cluster: KubernetesCluster, lease_names: tuple[str, ...]) -> Iterator[Obj]:
    for namespace in SYSTEM_NAMESPACES:
        for name in lease_names[1:] if namespace == SYSTEM_NAMESPACES[-1] else lease_names[:1]:
            try:
                yield cluster.get(LEASE, name, namespace)
            except (Forbidden, NotFound):
                continue


def _is_held(lease: Obj) -> bool:
    return bool((lease.get("spec") or {}).get("holderIdentity"))


def _seconds_since_renewal(lease: Obj, now: datetime) -> float:
    try:
        return (now - parse_time(_renew_time(lease))).total_seconds()
    except ValueError:  # no time, or none that can be read
        return float("inf")


def _renew_time(lease: Obj) -> str:
    return str((lease.get("spec") or {}).get("renewTime") or "")


def _key(lease: Obj) -> str:
    return f"{namespace_of(lease)}/{name_of(lease)}"
