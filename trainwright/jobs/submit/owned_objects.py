"""Owners of objects: a TrainJob owns what is created before it, such as its packed code, and is owned by the workflow of its
pipeline.

Packed code is stored in ConfigMaps that every training container mounts. They get their owner reference when the job exists, so
that they are deleted with it. Their names are deterministic: a retry after a crash in between finds them.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

from trainwright.api import names
from trainwright.api.errors import AlreadyExists, ApiError, Conflict, Forbidden, NotFound
from trainwright.api.kinds import CONFIG_MAP, TRAINJOB, Kind
from trainwright.api.objects import Obj, labels_of, name_of, namespace_of, owners_of, uid_of
from trainwright.cluster.protocol import Cluster
from trainwright.cluster.retrying import RetryingCluster
from trainwright.jobs.code.code_package import PackedCode
from trainwright.jobs.manifest.mounts import config_map_names
from trainwright.jobs.state.run_folder import label_value
from trainwright.jobs.state.waiters import Workflow
from trainwright.submission.jobs_client import JobsClient

_MAX_TRIES = 10
log = logging.getLogger(__name__)


def trainjob_reference(trainjob: Obj) -> Obj:
    """Return the owner reference for a TrainJob."""
    return {key: trainjob[key] for key in ("apiVersion", "kind")} | {"name": name_of(trainjob), "uid": uid_of(trainjob)}


def set_owners(
    cluster: Cluster,
    kind: Kind,
    name: str,
    namespace: str,
    owners: Callable[[Obj], list[Obj] | None],
    *,
    recreate: Callable[[], object] | None = None,
) -> None:
    """Set the owner references of an object to `owners(object)`; None leaves the object unchanged.

    `recreate` is called if the object does not exist. The object is then read again after the change, since garbage collection of a
    previous owner may delete it. Raises Conflict if the object changes at every try, NotFound without `recreate`, and ApiError.
    """
    for _ in range(_MAX_TRIES):
        try:
            current = cluster.get(kind, name, namespace)
            references = owners(current)
            if references is None:  # they are as they should be
                return
            metadata = {"resourceVersion": current["metadata"]["resourceVersion"], "ownerReferences": references}
            cluster.patch(kind, name, {"metadata": metadata}, namespace)
        except NotFound:
            if recreate is None:
                raise
            with suppress(AlreadyExists):
                recreate()
        except Conflict:  # it has changed since it was read
            continue
        else:
            if recreate is None:  # else it is read again: it may be deleted with its previous owner
                return
    raise Conflict(f"the {kind.kind} {name!r} changed {_MAX_TRIES} times while its owner was being set")


def ensure_code(cluster: Cluster, trainjob: Obj, code: PackedCode) -> None:
    """Create the ConfigMaps of a job that is about to be created, if they do not exist. Raises ApiError."""
    for config_map in code_config_maps(trainjob, code):
        try:
            cluster.create(config_map)
        except AlreadyExists:  # from an earlier try or a deleted job of this name; `set_code_owner` sets the owner
            continue
        except Forbidden as error:
            raise Forbidden(
                f"code: its ConfigMaps cannot be created: {error.message}; grant create, get and patch on configmaps, "
                "or include the code in an image"
            ) from error


def set_code_owner(cluster: Cluster, trainjob: Obj, code: PackedCode) -> None:
    """Make the job the owner of its ConfigMaps; recreates one that was deleted with an earlier job of this name. Idempotent.

    Without permission the ConfigMaps stay ownerless, with a warning. Raises other ApiErrors.
    """
    reference = trainjob_reference(trainjob)

    def owners(config_map: Obj) -> list[Obj] | None:
        return None if [owner["uid"] for owner in owners_of(config_map)] == [reference["uid"]] else [reference]

    try:
        for config_map in code_config_maps(trainjob, code):
            recreate = partial(cluster.create, config_map)
            set_owners(cluster, CONFIG_MAP, name_of(config_map), namespace_of(config_map), owners, recreate=recreate)
    except Forbidden as error:  # the job runs all the same; only its code stays when it is deleted
        log.warning("event=code_owner_not_set name=%s error=%s", name_of(trainjob), error.message)


def code_config_maps(trainjob: Obj, code: PackedCode) -> Iterator[Obj]:
    """Yield the ConfigMaps with the code of a job, without an owner."""
    kept = (names.MANAGED_BY_LABEL, names.RUN_LABEL, names.STEP_LABEL)
    labels = {key: value for key, value in labels_of(trainjob).items() if key in kept}
    for number, name in enumerate(config_map_names(name_of(trainjob), code)):
        yield {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": namespace_of(trainjob), "labels": labels},
            "immutable": True,
            "binaryData": {f"part-{number:03d}": base64.b64encode(code.parts[number]).decode()},
        }


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
