"""What a cluster must have, and let us do, before a controller works on it: asked once, so that a lack is told at once and whole."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from trainwright.api.errors import ApiError, Forbidden, NotFound, Unauthorized
from trainwright.api.kinds import CLUSTER_TRAINING_RUNTIME, JOBSET, LEASE, TRAINING_RUNTIME, TRAINJOB
from trainwright.api.times import parse_time
from trainwright.cluster.access import Right
from trainwright.cluster.kubernetes_cluster import KubernetesCluster
from trainwright.cluster.live_controller import UPSTREAM_LEASE
from trainwright.cluster.self_review import is_allowed, served_plurals

_FRESH_SECONDS = 60.0
"""A Lease that was renewed within so many seconds of our time belongs to somebody who is at work; clocks differ by less."""
log = logging.getLogger(__name__)


class Unfit(Exception):
    """This cluster cannot be worked on with these rights; the message says what is missing and what to do."""


class OthersAtWork(Exception):
    """Another controller works on the same TrainJobs."""


@dataclass(frozen=True)
class Need:
    """Rights on one resource. `everywhere`: in every namespace, also when the controller looks after a single one."""

    group: str
    resource: str
    verbs: tuple[str, ...]
    everywhere: bool = False


NEEDS = (
    Need("trainer.kubeflow.org", "trainjobs", ("list", "watch")),
    Need("trainer.kubeflow.org", "trainjobs/status", ("patch",)),
    Need("trainer.kubeflow.org", "trainingruntimes", ("get", "list", "watch", "patch")),
    Need("trainer.kubeflow.org", "clustertrainingruntimes", ("get",), everywhere=True),
    Need("jobset.x-k8s.io", "jobsets", ("list", "watch", "create", "patch", "delete")),
    Need("", "configmaps", ("get", "create", "patch")),
    Need("", "secrets", ("get", "create")),
    Need("", "events", ("get", "create", "patch")),
)
"""What every run needs. PodGroups are needed by runtimes that ask for them alone."""
WHOLE_CLUSTER = Need("trainer.kubeflow.org", "clustertrainingruntimes", ("list", "watch", "patch"), everywhere=True)
ELECTION = Need("coordination.k8s.io", "leases", ("get", "create", "update"))
"""In the namespace of the Lease."""


def check(cluster: KubernetesCluster, namespace: str | None, lease_namespace: str | None) -> None:
    """Raises Unfit with everything that is missing, and ApiError where the cluster cannot be asked."""
    needed = (TRAINJOB, TRAINING_RUNTIME, CLUSTER_TRAINING_RUNTIME, JOBSET)
    absent = [kind.resource for kind in needed if kind.plural not in served_plurals(cluster, kind.group, kind.version)]
    if absent:
        raise Unfit(
            f"{cluster.host} does not serve {', '.join(absent)}: install the missing CustomResourceDefinitions "
            "(`trainwright crds | kubectl apply --server-side -f -`) and, for JobSets, JobSet's controller"
        )
    try:
        missing = list(_missing(cluster, namespace, lease_namespace))
    except (Forbidden, NotFound, Unauthorized) as error:
        if isinstance(error, Unauthorized):
            raise
        log.warning("rights not checked error=%s", error.message)
        return
    if missing:
        raise Unfit(f"missing rights: {'; '.join(map(str, missing))}. deploy/controller/rbac.yaml grants them")


def refuse_others(cluster: KubernetesCluster) -> None:
    """Raises OthersAtWork when Trainer's own manager has just renewed its Lease. Where Leases may not be listed, nothing is known."""
    try:
        leases = cluster.list(LEASE, field_selector=f"metadata.name={UPSTREAM_LEASE}").items
    except Forbidden as error:
        log.info("not known whether another Trainer is at work error=%s", error.message)
        return
    for lease in leases:
        spec = lease.get("spec") or {}
        if spec.get("holderIdentity") and spec.get("renewTime") and _is_fresh(spec["renewTime"]):
            raise OthersAtWork(
                f"Trainer's own manager is at work: {spec['holderIdentity']} holds the Lease {UPSTREAM_LEASE} in the namespace "
                f"{lease['metadata']['namespace']}. Two controllers would write the same TrainJobs: stop one of them"
            )


def _missing(cluster: KubernetesCluster, namespace: str | None, lease_namespace: str | None) -> Iterator[Right]:
    asked = [(need, "" if need.everywhere else namespace or "") for need in NEEDS]
    asked += [(WHOLE_CLUSTER, "")] if namespace is None else []
    asked += [(ELECTION, lease_namespace)] if lease_namespace is not None else []
    for need, where in asked:
        resource, _, sub = need.resource.partition("/")
        for verb in need.verbs:
            plural = f"{resource}.{need.group}" if need.group else resource
            right = Right(verb, plural + (f"/{sub}" if sub else ""), where)
            if not is_allowed(cluster, right):
                yield right


def _is_fresh(renewed: str) -> bool:
    try:
        return abs((datetime.now(UTC) - parse_time(renewed)).total_seconds()) < _FRESH_SECONDS
    except ValueError as error:
        raise ApiError(f"the Lease {UPSTREAM_LEASE} says renewTime {renewed!r}, which is no time") from error
