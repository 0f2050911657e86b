"""Checks a connection to a cluster for the button `Test` of Airflow's form: whether it answers, and whether jobs may be created."""

from __future__ import annotations

from trainwright.api.errors import ApiError
from trainwright.cluster.discovery import is_allowed, server_version
from trainwright.cluster.refusals import Permission
from trainwright.submission.jobs_client import JobsClient


def check_cluster(cluster: JobsClient) -> tuple[bool, str]:
    """Return whether a client (`trainwright.submission.JobsClient`) can submit TrainJobs, and a sentence about it. Raises ApiError."""
    namespace = cluster.default_namespace
    found = f"Kubernetes {server_version(cluster)} at {cluster.host}, submission mode {cluster.mode}"
    create = Permission("create", cluster.job_kind.resource, namespace)
    try:
        allowed = is_allowed(cluster, create)
    except ApiError as error:
        return True, f"{found}; permissions cannot be checked: {error.message}"
    if not allowed:
        return False, f"{found}; missing permission: {create}"
    return True, f"{found}; TrainJobs may be created in the namespace {namespace}"
