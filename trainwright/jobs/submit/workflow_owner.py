"""Ties a TrainJob to the workflow of its pipeline: a label to find it by, and an owner reference, so that it is deleted with it."""

from __future__ import annotations

import logging

from trainwright.api import names
from trainwright.api.errors import ApiError
from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import Obj, name_of, namespace_of
from trainwright.cluster.retrying import RetryingCluster
from trainwright.jobs.state.run_folder import label_value
from trainwright.jobs.state.waiters import Workflow
from trainwright.jobs.submit.owner_references import set_owners
from trainwright.submission.jobs_client import JobsClient

log = logging.getLogger(__name__)


def tie_to_workflow(client: JobsClient, trainjob: Obj, workflow: Workflow) -> None:
    """Label the job with the workflow, and add the workflow to its owners. Of an adopted job the earlier workflows stay owners:
    it is deleted with the last one, and not while another run waits for it.

    A job in another namespace only gets the label. An error is logged, since the job itself is as it should be.
    """
    name, namespace = name_of(trainjob), namespace_of(trainjob)

    def owners(current: Obj) -> list[Obj] | None:
        references: list[Obj] = current["metadata"].get("ownerReferences") or []
        is_known = any(reference.get("uid") == workflow.reference["uid"] for reference in references)
        return None if is_known else [*references, workflow.reference]

    try:
        labels = {names.WORKFLOW_LABEL: label_value(workflow.name)}
        retrying = RetryingCluster(client)
        retrying.patch(TRAINJOB, name, {"metadata": {"labels": labels}}, namespace)
        if workflow.namespace == namespace:
            set_owners(retrying, client.job_kind, name, namespace, owners)
    except ApiError as error:
        log.warning("event=workflow_not_tied name=%s workflow=%s error=%s", name, workflow.name, error.message)
