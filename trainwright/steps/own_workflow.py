"""Finds the workflow that this step of Kubeflow Pipelines belongs to, from its own pod.

The environment of a step names its pod, but neither the run nor the workflow.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping

from trainwright.api.errors import ApiError
from trainwright.api.kinds import POD
from trainwright.api.objects import uid_of
from trainwright.cluster.retrying import RetryingCluster
from trainwright.jobs.state.workflow import Workflow
from trainwright.submission.jobs_client import JobsClient

log = logging.getLogger(__name__)


def own_workflow(client: JobsClient, environ: Mapping[str, str] = os.environ) -> Workflow | None:
    """Return the workflow that owns the pod of this step; None outside of a pod, or if the pod may not be read."""
    name, uid = environ.get("KFP_POD_NAME", ""), environ.get("KFP_POD_UID", "")
    if not name:
        return None
    namespace = client.default_namespace
    try:
        pod = RetryingCluster(client.base).get(POD, name, namespace)
    except ApiError as error:
        log.warning("event=own_pod_not_read name=%s error=%s", name, error.message)
        return None
    if uid and uid_of(pod) != uid:  # of another cluster than this step runs on
        return None
    for owner in pod["metadata"].get("ownerReferences") or []:
        if owner.get("kind") == "Workflow":
            reference = {field: owner[field] for field in ("apiVersion", "kind", "name", "uid")}
            return Workflow(owner["name"], namespace, reference)
    return None
