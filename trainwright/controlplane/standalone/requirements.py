"""Checks the cluster's APIs and the permissions on startup, so that everything missing is reported at once."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from trainwright.api.errors import ApiError, Forbidden, NotFound, Unauthorized
from trainwright.api.kinds import CLUSTER_TRAINING_RUNTIME, JOBSET, LEASE, TRAINING_RUNTIME, TRAINJOB
from trainwright.api.times import parse_time
from trainwright.cluster.discovery import is_allowed, served_plurals
from trainwright.cluster.kubernetes_cluster import KubernetesCluster
from trainwright.cluster.permissions import Permission
from trainwright.submission.controller_lease import UPSTREAM_LEASE

_FRESH_SECONDS = 60.0
"""A Lease renewed within this time of now belongs to a running controller; clock differences are smaller."""
log = logging.getLogger(__name__)


class RequirementsNotMet(Exception):
    """The cluster lacks APIs or permissions; the message lists what is missing and a fix."""


class ConflictingController(Exception):
    """Another controller reconciles the same TrainJobs."""


@dataclass(frozen=True)
class Requirement:
    """Permissions on a resource. `everywhere`: in all namespaces, even if the controller is limited to one."""

    group: str
    resource: str
    verbs: tuple[str, ...]
    everywhere: bool = False


REQUIREMENTS = (
    Requirement("trainer.kubeflow.org", "trainjobs", ("list", "watch")),
    Requirement("trainer.kubeflow.org", "trainjobs/status", ("patch",)),
    Requirement("trainer.kubeflow.org", "trainingruntimes", ("get", "list", "watch", "patch")),
    Requirement("trainer.kubeflow.org", "clustertrainingruntimes", ("get",), everywhere=True),
    Requirement("jobset.x-k8s.io", "jobsets", ("list", "watch", "create", "patch", "delete")),
    Requirement("", "configmaps", ("get", "create", "patch")),
    Requirement("", "secrets", ("get", "create")),
    Requirement("", "events", ("get", "create", "patch")),
)
"""Permissions that are always required. PodGroups are required only for runtimes that use them."""
WHOLE_CLUSTER = Requirement("trainer.kubeflow.org", "clustertrainingruntimes", ("list", "watch", "patch"), everywhere=True)
ELECTION = Requirement("coordination.k8s.io", "leases", ("get", "create", "update"))
"""In the namespace of the Lease."""


def check(cluster: KubernetesCluster, namespace: str | None, lease_namespace: str | None) -> None:
    """Raise RequirementsNotMet with everything that is missing, and ApiError if the cluster cannot be queried."""
    needed = (TRAINJOB, TRAINING_RUNTIME, CLUSTER_TRAINING_RUNTIME, JOBSET)
    absent = [kind.resource for kind in needed if kind.plural not in served_plurals(cluster, kind.group, kind.version)]
    if absent:
        raise RequirementsNotMet(
            f"{cluster.host} does not serve {', '.join(absent)}: install the missing CustomResourceDefinitions "
            "(`trainwright crds | kubectl apply --server-side -f -`) and, for JobSets, JobSet's controller"
        )
    try:
        missing = list(_missing(cluster, namespace, lease_namespace))
    except (Forbidden, NotFound, Unauthorized) as error:
        if isinstance(error, Unauthorized):
            raise
        log.warning("permissions not checked error=%s", error.message)
        return
    if missing:
        raise RequirementsNotMet(f"missing permissions: {'; '.join(map(str, missing))}. deploy/controller/rbac.yaml grants them")


def check_no_conflicting_controller(cluster: KubernetesCluster) -> None:
    """Raise ConflictingController if Trainer's manager has just renewed its Lease. Skipped without permission to list Leases."""
    try:
        leases = cluster.list(LEASE, field_selector=f"metadata.name={UPSTREAM_LEASE}").items
    except Forbidden as error:
        log.info("another running Trainer cannot be detected error=%s", error.message)
        return
    for lease in leases:
        spec = lease.get("spec") or {}
        if spec.get("holderIdentity") and spec.get("renewTime") and _is_fresh(spec["renewTime"]):
            raise ConflictingController(
                f"Trainer's own manager is running: {spec['holderIdentity']} holds the Lease {UPSTREAM_LEASE} in the namespace "
                f"{lease['metadata']['namespace']}. Two controllers would write the same TrainJobs: stop one of them"
            )


def _missing(cluster: KubernetesCluster, namespace: str | None, lease_namespace: str | None) -> Iterator[Permission]:
    checks = [(need, "" if need.everywhere else namespace or "") for need in REQUIREMENTS]
    checks += [(WHOLE_CLUSTER, "")] if namespace is None else []
    checks += [(ELECTION, lease_namespace)] if lease_namespace is not None else []
    for need, where in checks:
        resource, _, sub = need.resource.partition("/")
        for verb in need.verbs:
            plural = f"{resource}.{need.group}" if need.group else resource
            right = Permission(verb, plural + (f"/{sub}" if sub else ""), where)
            if not is_allowed(cluster, right):
                yield right


def _is_fresh(renewed: str) -> bool:
    try:
        return abs((datetime.now(UTC) - parse_time(renewed)).total_seconds()) < _FRESH_SECONDS
    except ValueError as error:
        raise ApiError(f"the Lease {UPSTREAM_LEASE} has the invalid renewTime {renewed!r}") from error
