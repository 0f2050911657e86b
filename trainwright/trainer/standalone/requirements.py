"""Checks the cluster's APIs and the permissions on startup, so that everything missing is reported at once.

Each permission is checked exactly as deploy/controller grants it: one that is granted for a name is checked for that name.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

from trainwright.api.errors import Forbidden, NotFound, Unauthorized
from trainwright.api.kinds import CLUSTER_TRAINING_RUNTIME, JOBSET, LEASE, TRAINING_RUNTIME, TRAINJOB
from trainwright.cluster.discovery import is_allowed, served_plurals
from trainwright.cluster.kubernetes_cluster import KubernetesCluster
from trainwright.cluster.refusals import Permission

log = logging.getLogger(__name__)


class RequirementsNotMet(Exception):
    """The cluster lacks APIs or permissions; the message lists what is missing and a fix."""


@dataclass(frozen=True)
class Requirement:
    """Permissions on a resource. `everywhere`: in all namespaces, even if the controller is limited to one."""

    group: str
    resource: str
    verbs: tuple[str, ...]
    everywhere: bool = False
    name: str = ""
    """Set if only the object with this name is needed."""


REQUIREMENTS = (
    Requirement("trainer.kubeflow.org", "trainjobs", ("list", "watch")),
    Requirement("trainer.kubeflow.org", "trainjobs/status", ("patch",)),
    Requirement("trainer.kubeflow.org", "trainingruntimes", ("get", "list", "watch", "patch")),
    Requirement("trainer.kubeflow.org", "clustertrainingruntimes", ("get",), everywhere=True),
    Requirement("jobset.x-k8s.io", "jobsets", ("list", "watch", "create", "patch", "delete")),
    Requirement("", "configmaps", ("get", "create", "patch")),
    Requirement("", "events", ("get", "create", "patch")),
)
"""Permissions that are always required. PodGroups and Secrets are required only for runtimes that use them."""
WHOLE_CLUSTER = Requirement("trainer.kubeflow.org", "clustertrainingruntimes", ("list", "watch", "patch"), everywhere=True)


def election_requirements(lease: str) -> tuple[Requirement, ...]:
    """Return the permissions for leader election, in the namespace of the Lease; `create` cannot be granted for a name."""
    group = LEASE.group
    return Requirement(group, LEASE.plural, ("create",)), Requirement(group, LEASE.plural, ("get", "update"), name=lease)


def check(cluster: KubernetesCluster, namespace: str | None, lease: tuple[str, str] | None) -> None:
    """Raise RequirementsNotMet with everything that is missing, and ApiError if the cluster cannot be queried.

    `lease` is the namespace and name of the Lease for leader election, None without it.
    """
    needed = (TRAINJOB, TRAINING_RUNTIME, CLUSTER_TRAINING_RUNTIME, JOBSET)
    absent = [kind.resource for kind in needed if kind.plural not in served_plurals(cluster, kind.group, kind.version)]
    if absent:
        raise RequirementsNotMet(
            f"{cluster.host} does not serve {', '.join(absent)}: install the missing CustomResourceDefinitions "
            "(`trainwright crds | kubectl apply --server-side -f -`) and, for JobSets, JobSet's controller"
        )
    try:
        missing = list(_missing(cluster, namespace, lease))
    except (Forbidden, NotFound, Unauthorized) as error:  # an account need not be allowed to review its own permissions
        if isinstance(error, Unauthorized):
            raise
        log.warning("permissions not checked error=%s", error.message)
        return
    if missing:
        raise RequirementsNotMet(f"missing permissions: {'; '.join(missing)}. deploy/controller/rbac.yaml grants them")


def _missing(cluster: KubernetesCluster, namespace: str | None, lease: tuple[str, str] | None) -> Iterator[str]:
    checks = [(need, "" if need.everywhere else namespace or "") for need in REQUIREMENTS]
    checks += [(WHOLE_CLUSTER, "")] if namespace is None else []
    checks += [(need, lease[0]) for need in election_requirements(lease[1])] if lease is not None else []
    for need, where in checks:
        resource, _, sub = need.resource.partition("/")
        for verb in need.verbs:
            plural = f"{resource}.{need.group}" if need.group else resource
            permission = Permission(verb, plural + (f"/{sub}" if sub else ""), where)
            if not is_allowed(cluster, permission, need.name):
                yield f"{permission}, name {need.name}" if need.name else str(permission)
