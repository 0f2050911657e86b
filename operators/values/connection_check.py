"""Checks a connection to a cluster for the button `Test` of Airflow's form: whether it answers, and whether jobs may be created."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from trainwright.cluster.kubernetes_cluster import KubernetesCluster
    from trainwright.submission.jobs_client import JobsClient


def check_cluster(cluster: JobsClient) -> tuple[bool, str]:
    """Return whether a client (`trainwright.submission.JobsClient`) can submit TrainJobs, and a sentence about it. Raises ApiError."""
    from trainwright.api.errors import ApiError
    from trainwright.api.kinds import JOBSET, TRAINJOB
    from trainwright.cluster.discovery import is_allowed, server_version
    from trainwright.cluster.permissions import Permission
    from trainwright.submission.mode import Mode

    base, namespace, mode = cast("KubernetesCluster", cluster.base), cluster.default_namespace, cluster.mode
    found = f"Kubernetes {server_version(base)} at {base.host}, submission mode {mode}"
    create = Permission("create", (JOBSET if mode is Mode.jobset else TRAINJOB).resource, namespace)
    try:
        allowed = is_allowed(base, create)
    except ApiError as error:
        return True, f"{found}; permissions cannot be checked: {error.message}"
    if not allowed:
        return False, f"{found}; missing permission: {create}"
    return True, f"{found}; TrainJobs may be created in the namespace {namespace}"
