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
from trainwright.cluster.kubernetes_cluster import KubernetesCluster
from trainwright.cluster.self_review import server_version

UPSTREAM_LEASE = "trainer.kubeflow.org"
"""The Lease of Trainer's own manager, in whatever namespace that was installed."""
OWN_LEASE = "trainwright-controller"
"""The Lease of `trainwright controller`; one for a single namespace has that behind it."""
SYSTEM_NAMESPACES = ("kubeflow-system", "kubeflow", "opendatahub", "redhat-ods-applications", "trainwright-system")
"""Where it is looked for by whoever may not look everywhere."""
_FRESH_SECONDS = 120
RENEWAL_SECONDS = 5.0
"""A holder renews its Lease every two seconds: one that changes within this time is held, whatever our clock makes of its time."""


class Life(enum.StrEnum):
    alive = "alive"
    gone = "gone"
    absent = "absent"
    """No Lease anywhere: nobody works, or a manager that runs alone."""
    unknown = "unknown"


@dataclass(frozen=True)
class ControllerLife:
    """`why` is a sentence about it."""

    life: Life
    why: str


def controller_life(
    cluster: KubernetesCluster,
    namespace: str,
    *,
    now: datetime | None = None,
    pause: Callable[[float], None] = time.sleep,
) -> ControllerLife:
    """What the Leases tell of a controller that acts on the TrainJobs of this namespace. Raises ApiError."""
    if "+trainwright" in server_version(cluster):
        return ControllerLife(Life.alive, "the embedded control plane runs its controllers itself")
    moment = now or datetime.now(UTC)
    leases, everywhere = [], True
    for lease in _leases(cluster, namespace):
        if lease is None:
            everywhere = False
        elif _is_held(lease) and abs(_age(lease, moment)) < _FRESH_SECONDS:
            return ControllerLife(Life.alive, f"the Lease {_named(lease)} is renewed")
        else:
            leases.append(lease)
    held = [lease for lease in leases if _is_held(lease)]
    if held:
        pause(RENEWAL_SECONDS)
        again = {_named(lease): _renewed(lease) for lease in _leases(cluster, namespace) if lease is not None}
        if changed := next((lease for lease in held if again.get(_named(lease), _renewed(lease)) != _renewed(lease)), None):
            return ControllerLife(Life.alive, f"the Lease {_named(changed)} is renewed, by a clock that is not ours")
    if leases:
        last = max(leases, key=_renewed)
        return ControllerLife(Life.gone, f"the Lease {_named(last)} was renewed last at {_renewed(last) or 'no time'}")
    if everywhere:
        return ControllerLife(Life.absent, f"there is no Lease {UPSTREAM_LEASE} or {OWN_LEASE}")
    return ControllerLife(Life.unknown, "Leases may not be read")


def _leases(cluster: KubernetesCluster, namespace: str) -> Iterator[Obj | None]:
    """Those of controllers; None where it is not known whether there are more."""
    wanted = (UPSTREAM_LEASE, OWN_LEASE, f"{OWN_LEASE}-{namespace}")
    try:
        for name in wanted:  # by name: every node of a cluster has a Lease, too
            yield from cluster.list(LEASE, field_selector=f"metadata.name={name}").items
    except (Forbidden, NotFound):
        yield None
        yield from _here_and_there(cluster, wanted)


def _here_and_there(cluster: KubernetesCluster, wanted: tuple[str, ...]) -> Iterator[Obj]:
    for namespace in SYSTEM_NAMESPACES:
        for name in wanted[1:] if namespace == SYSTEM_NAMESPACES[-1] else wanted[:1]:
            try:
                yield cluster.get(LEASE, name, namespace)
            except (Forbidden, NotFound):
                continue


def _is_held(lease: Obj) -> bool:
    return bool((lease.get("spec") or {}).get("holderIdentity"))


def _age(lease: Obj, now: datetime) -> float:
    try:
        return (now - parse_time(_renewed(lease))).total_seconds()
    except ValueError:  # no time, or none that can be read
        return float("inf")


def _renewed(lease: Obj) -> str:
    return str((lease.get("spec") or {}).get("renewTime") or "")


def _named(lease: Obj) -> str:
    return f"{namespace_of(lease)}/{name_of(lease)}"
