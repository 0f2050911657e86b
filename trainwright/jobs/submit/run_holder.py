"""Ensures that only one step writes to the folder of a run: the first TrainJob holds it, others are rejected.

Two steps with the same run id and workspace would otherwise silently overwrite each other's checkpoints.
"""

from __future__ import annotations

from trainwright.api import names
from trainwright.api.errors import Forbidden
from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import Obj, annotations_of, is_deleting, labels_of, name_of, namespace_of, uid_of
from trainwright.cluster.protocol import Cluster
from trainwright.jobs.diagnosis.errors import RunFolderTaken
from trainwright.jobs.manifest.workspace_mounts import folder_uri
from trainwright.jobs.request.workspace import Workspace
from trainwright.jobs.state.identity import Identity
from trainwright.jobs.state.run_folder import label_value


def check_holder(cluster: Cluster, candidate: Obj, identity: Identity) -> None:
    """Reject a job whose folder is held by that of another step than `identity`.

    Raises RunFolderTaken naming the holder, and ApiError if jobs cannot be listed.
    """
    for other in _other_holders(cluster, candidate, identity):
        raise RunFolderTaken(_conflict_message(candidate, other))


def check_run_folder(cluster: Cluster, workspace: Workspace, identity: Identity, namespace: str) -> None:
    """Like `check_holder`, for a run that has not submitted its job yet, before anything else is written to its folder."""
    metadata = {
        "name": identity.name(),
        "namespace": namespace,
        "labels": {names.RUN_LABEL: label_value(identity.run)},
        "annotations": {names.RUN_FOLDER_ANNOTATION: folder_uri(workspace, identity.folder)},
    }
    check_holder(cluster, {"metadata": metadata}, identity)


def resolve_holder_conflict(cluster: Cluster, created: Obj, identity: Identity) -> None:
    """Resolve a race after creation: if another job was created for the same folder, the later one is deleted.

    If both have the same creation time, both are deleted. Raises RunFolderTaken after deleting the job, or if it cannot be deleted.
    """
    for other in _other_holders(cluster, created, identity):
        if _created_at(other) <= _created_at(created):
            message = f"{_conflict_message(created, other)}; both were submitted at the same time"
            try:
                cluster.delete(TRAINJOB, name_of(created), namespace_of(created), propagation="Foreground", uid=uid_of(created))
            except Forbidden as error:
                raise RunFolderTaken(
                    f"{message}, and the TrainJob {name_of(created)!r} cannot be deleted: {error.message}; delete it manually"
                ) from error
            conflict = RunFolderTaken(f"{message}, and this one was deleted")
            conflict.retryable = True
            raise conflict


def _other_holders(cluster: Cluster, trainjob: Obj, identity: Identity) -> list[Obj]:
    folder = annotations_of(trainjob).get(names.RUN_FOLDER_ANNOTATION)
    if not folder:
        return []
    selector = f"{names.RUN_LABEL}={labels_of(trainjob)[names.RUN_LABEL]}"
    return [
        job
        for job in cluster.list(TRAINJOB, namespace_of(trainjob), label_selector=selector).items
        if annotations_of(job).get(names.RUN_FOLDER_ANNOTATION) == folder
        and annotations_of(job).get(names.OWNER_ANNOTATION) != str(identity)
        and not is_deleting(job)
    ]


def _conflict_message(trainjob: Obj, holder: Obj) -> str:
    folder, owner = annotations_of(trainjob)[names.RUN_FOLDER_ANNOTATION], annotations_of(holder).get(names.OWNER_ANNOTATION)
    return (
        f"run_id: the folder {folder} is in use by the TrainJob {name_of(holder)!r} of {owner or 'another owner'}; "
        "choose another run_id or workspace, or delete that job to take over its checkpoints"
    )


def _created_at(trainjob: Obj) -> str:
    return str(trainjob["metadata"].get("creationTimestamp") or "")
